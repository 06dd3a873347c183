"""New encodings of clips and images, properties of good and broken files, and manifests."""

import io
import math
import os
from dataclasses import replace
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from tests.helpers import clips
from zoo.data.errors import BadSample, UserError
from zoo.data.packs import manifest
from zoo.data.packs.manifest import Info, Manifest
from zoo.data.preparing import encoding
from zoo.data.preparing.encoding import ImageProperties, image_properties, upright_frames, video_properties

FRAMES = 21


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A clip with a noisy background, which no encoder keeps."""
    noise = np.random.default_rng(0).integers(-20, 20, (FRAMES, 64, 96, 1))
    frames = (clips.numbered(FRAMES) + noise).clip(0, 255).astype(np.uint8)
    return clips.encode(tmp_path_factory.mktemp("clips") / "a.mp4", frames, crf="1", bf="2")


def luma(content, size=None):
    """Decode a video and return its luma (L, H, W), scaled as the encoder was given it."""
    with av.open(content) as container:
        frames = [frame.reformat(*(size or (None, None)), "yuv420p") for frame in container.decode(video=0)]
    return np.stack([frame.to_ndarray()[: frame.height] for frame in frames])


def psnr(a, b):
    return 10 * math.log10(255**2 / np.mean((a.astype(float) - b) ** 2))


def test_a_clip_keeps_its_frames_and_has_frequent_keyframes(noisy):
    clip = encoding.h264_clip(noisy, (30, 1), short_side=48, crf=20, gop=4)
    (content,) = clip.parts
    assert (clip.frames, clip.width, clip.height) == (FRAMES, 72, 48)
    with av.open(io.BytesIO(content)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        assert [number for number, packet in enumerate(packets) if packet.is_keyframe] == list(range(0, FRAMES, 4))
        assert [packet.pts for packet in packets] == sorted(packet.pts for packet in packets)  # no B-frames
        assert (stream.average_rate, stream.frames) == (30, FRAMES)
        container.seek(0)
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert clips.read_numbers(shown) == list(range(FRAMES))
    assert encoding.h264_clip(noisy, (30, 1), 48, 20, 4).parts == clip.parts


def test_the_quality_of_a_clip(noisy):
    source, values = luma(noisy), []
    for crf in (15, 35):
        clip = encoding.h264_clip(noisy, (0, 1), 256, crf, 8)
        assert (clip.width, clip.height) == (96, 64)  # not enlarged
        values.append(psnr(luma(io.BytesIO(clip.parts[0])), source))
    assert values[0] > values[1] + 5 and values[0] > 35


def test_odd_sizes_become_even(tmp_path):
    path = clips.encode(tmp_path / "a.mkv", clips.numbered(3, 51, 37), "libvpx-vp9", pix_fmt="yuv444p")
    clip = encoding.h264_clip(path, (25, 1), 256, 20, 8)
    assert (clip.frames, clip.width, clip.height) == (3, 52, 36)
    assert encoding.scaled_size(1280, 720, 256) == (455, 256)
    assert encoding.scaled_size(720, 1281, 256, multiple=2) == (256, 456)
    assert encoding.scaled_size(1, 400, 256, multiple=2) == (2, 400)


def test_gray_clips(tmp_path):
    path = clips.encode(tmp_path / "a.mp4", clips.numbered(5), pix_fmt="gray")
    shown = luma(io.BytesIO(encoding.h264_clip(path, (25, 1), 64, 20, 8).parts[0]))
    assert clips.read_numbers(shown[..., None]) == list(range(5))


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_rotated_clips_become_upright(tmp_path, degrees):
    path = str(tmp_path / "rotated.mp4")
    frames = clips.encode_rotated(path, 5, degrees)
    upright = np.rot90(frames[0], degrees // 90)
    assert video_properties(path)[1:3] == upright.shape[1::-1]
    clip = encoding.h264_clip(path, (12, 1), 48, 20, 8)
    assert (clip.width, clip.height) == upright.shape[1::-1]
    shown = luma(io.BytesIO(clip.parts[0]))
    assert len(shown) == 5 and np.abs((shown[-1] > 128) * 255.0 - upright[:, :, 0]).mean() < 2
    image = cv2.imdecode(np.frombuffer(encoding.jpeg_clip(path, 48, 90).parts[4], np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(image.astype(int) - upright).mean() < 8


def test_frames_as_jpeg(noisy):
    clip = encoding.jpeg_clip(noisy, 32, 95)
    frames = [cv2.imdecode(np.frombuffer(part, np.uint8), cv2.IMREAD_COLOR) for part in clip.parts]
    assert clip.frames == len(clip.parts) == FRAMES and frames[0].shape == (32, 48, 3)
    assert clips.read_numbers(frames) == list(range(FRAMES))
    with av.open(noisy) as container:
        source = [frame.reformat(48, 32, "bgr24").to_ndarray() for frame in container.decode(video=0)]
    assert psnr(np.stack(frames), np.stack(source)) > 35


def test_a_damaged_clip(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"no video")
    for encode in (
        lambda path: encoding.h264_clip(path, (25, 1), 256, 20, 8),
        lambda path: encoding.jpeg_clip(path, 256, 90),
    ):
        with pytest.raises(BadSample, match="cannot be decoded as video"):
            encode(str(tmp_path / "a.mp4"))


def image_file(pixels, form="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form, **options)
    return file.getvalue()


def test_images_are_resized_and_turned_upright():
    pixels = np.zeros((60, 80, 3), np.uint8)
    pixels[:, :40, 0] = 255  # red on the left
    exif = Image.Exif()
    exif[0x0112] = 6  # stored turned to the left: shown with its left side up
    image = encoding.jpeg_image(image_file(pixels, "JPEG", exif=exif, quality=100), 30, 95)
    content, width, height = image
    shown = np.asarray(Image.open(io.BytesIO(content)))
    assert (width, height) == (30, 40) and shown.shape == (40, 30, 3)
    assert shown[5, 15, 0] > 200 and shown[35, 15, 0] < 50
    plain = np.asarray(Image.fromarray(pixels).resize((40, 30), Image.Resampling.BILINEAR))
    upright = encoding.jpeg_image(image_file(pixels), 30, 95)
    decoded = cv2.imdecode(np.frombuffer(upright[0], np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]
    assert psnr(decoded, plain) > 30


def test_small_images_are_kept():
    assert encoding.jpeg_image(image_file(np.zeros((30, 80, 3), np.uint8)), 30, 95) is None


def test_images_of_more_than_8_bits_are_resized_if_8_are_enough():
    pixels = np.arange(60 * 80, dtype=np.uint16).reshape(60, 80)  # of 12 bits
    with pytest.raises(BadSample, match="its 16-bit levels become 0 to 18 of 255; scale them over 8 bits"):
        encoding.jpeg_image(image_file(pixels), 30, 95)
    assert encoding.jpeg_image(image_file(pixels * 13), 30, 95) is not None
    assert encoding.jpeg_image(image_file((pixels >> 8).astype(np.uint8), "GIF"), 30, 95) is not None  # as it is


LENGTH = 24


def noise_jpeg(size=64, quality=90):
    pixels = np.random.default_rng(0).integers(0, 255, (size, size, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return clips.encode(tmp_path_factory.mktemp("clips") / "a.mp4", clips.numbered(LENGTH), gop=6, rate=30)


def header_first(target):
    """Write a clip with its header in front of the frames, as web servers keep them."""
    return clips.encode(target, clips.numbered(LENGTH), gop=6, container_options={"movflags": "faststart"})


def bad(path, full=False):
    with pytest.raises(BadSample) as caught:
        video_properties(str(path), full)
    return str(caught.value)


def write_file(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("full", [False, True])
def test_properties_of_a_clip(clip, full):
    assert video_properties(clip, full) == ("h264", 96, 64, LENGTH, (30, 1))


@pytest.mark.parametrize("codec, name, suffix", [("libvpx-vp9", "vp9", "webm"), ("mpeg4", "mpeg4", "avi")])
def test_other_codecs(tmp_path, codec, name, suffix):
    path = clips.encode(tmp_path / f"a.{suffix}", clips.numbered(9), codec, gop=4)
    assert video_properties(path)[:4] == (name, 96, 64, 9)
    assert len(list(upright_frames(path))) == 9


def test_truncated_clips(tmp_path, clip):
    content = Path(clip).read_bytes()
    assert bad(write_file(tmp_path / "a.mp4", content[: len(content) * 3 // 4])).startswith(
        "cannot be decoded as video"
    )
    content = Path(header_first(tmp_path / "front.mp4")).read_bytes()
    assert "truncated" in bad(write_file(tmp_path / "b.mp4", content[: len(content) * 4 // 5]))


def test_frames_count_that_can_be_decoded(tmp_path):
    path = clips.encode(tmp_path / "a.mp4", clips.numbered(10), gop=5)
    content = bytearray(Path(path).read_bytes())
    at = content.index(b"stsz") + 12  # after version, size of all samples, number of samples
    assert int.from_bytes(content[at : at + 4], "big") == 10
    content[at : at + 4] = (9).to_bytes(4, "big")
    assert video_properties(write_file(tmp_path / "b.mp4", bytes(content))).frames == 9


def test_damaged_frames_are_found_in_the_parts_that_are_decoded(tmp_path, clip):
    content = bytearray(Path(clip).read_bytes())
    start = content.index(b"mdat") + 4
    end = content.index(b"moov") - 4
    content[start + 40 : end] = np.random.default_rng(1).bytes(end - start - 40)
    assert bad(write_file(tmp_path / "a.mp4", bytes(content)))
    assert bad(tmp_path / "a.mp4", full=True)


def test_properties_of_images():
    assert image_properties(noise_jpeg(20)) == ImageProperties("jpeg", 20, 20)
    file = io.BytesIO()
    Image.new("P", (3, 5)).save(file, "PNG")
    assert image_properties(file.getvalue()) == ("png", 3, 5)


def test_broken_images():
    content = noise_jpeg()
    for broken, reason in (
        (b"", "the file is empty"),
        (b"<html></html>", "not an image of a supported format, but a page of a web site; download the image itself"),
        (content[: len(content) // 2], "it breaks off"),
        (content[: len(content) // 2] + bytes(len(content) // 2), "it breaks off"),
    ):
        with pytest.raises(BadSample, match=reason):
            image_properties(broken)


def test_an_end_marker_in_a_thumbnail_is_not_the_end():
    """The marker of an embedded image comes before the scan of the image itself."""
    content = noise_jpeg()
    exif = b"\xff\xe1" + (2 + 4).to_bytes(2, "big") + b"\xff\xd9\xff\xd9"
    broken = content[:2] + exif + content[2 : len(content) // 2] + bytes(len(content))
    with pytest.raises(BadSample, match="it breaks off"):
        image_properties(broken)
    assert image_properties(content[:2] + exif + content[2:]).codec == "jpeg"


def example_manifest(count=3):
    columns = {
        name: np.arange(count * int(np.prod(shape)) if shape else count).reshape(count, *shape).astype(dtype)
        for name, (dtype, shape) in manifest.COLUMNS.items()
    }
    columns |= {"shard": np.zeros(count, np.int32), "first_record": np.arange(count), "records": np.ones(count, int)}
    info = Info("k400", "video", "pack", "/data/k400", ("a", "b"), {"train": (0, 2), "val": (2, 3)}, ("h264",),
                ("a.rec",), "terms")  # fmt: skip
    paths = [b"train/a/1.mp4", b"", "val/\xe9.mp4".encode("latin1")][:count]
    return Manifest(info, columns, paths, [], np.arange(count) * 100)


def write_manifest(folder, content):
    with open(os.path.join(folder, manifest.NAME), "wb") as file:
        file.write(content)


def test_a_manifest_is_read_again(tmp_path):
    assert not manifest.is_prepared(tmp_path)
    write_manifest(tmp_path, manifest.encode(example_manifest()))
    assert manifest.is_prepared(tmp_path)
    stored, wanted = manifest.read(tmp_path), example_manifest()
    assert stored.info == wanted.info and stored.paths == wanted.paths and len(stored) == 3
    for name, column in wanted.columns.items():
        np.testing.assert_array_equal(stored.columns[name], column)
    assert stored.record[1:3].tolist() == [100, 200]


def test_equal_manifests_have_equal_bytes():
    assert {manifest.encode(example_manifest()) for _ in range(5)} == {manifest.encode(example_manifest())}


def test_an_empty_manifest(tmp_path):
    empty = replace(example_manifest(0), info=replace(example_manifest().info, splits={"train": (0, 0)}))
    write_manifest(tmp_path, manifest.encode(empty))
    assert len(manifest.read(tmp_path)) == 0


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda c: c.update(label=np.zeros(2, np.int64)), "label is int64 (2,) for 3 samples"),
        (lambda c: c.update(size=np.zeros((3, 2), np.int64)), "size is int64"),
        (lambda c: c.update(first_record=np.array([0, 1, 3])), "records lie outside"),
        (lambda c: c.update(shard=np.array([0, 1, 0], np.int32)), "a sample lies in an unknown pack"),
        (lambda c: c.update(path_end=np.array([13, 13, 99])), "its paths are cut off"),
        (lambda c: c.update(path_end=np.array([13, 5, 20])), "its paths are damaged"),
        (lambda c: c.pop("record"), "record"),
    ],
)
def test_contradictions_are_refused(tmp_path, change, message):
    write_manifest(tmp_path, manifest.encode(example_manifest()))
    path = os.path.join(tmp_path, manifest.NAME)
    tensors = load_file(path)
    change(tensors)
    metadata = manifest.encode(example_manifest())
    start = metadata.index(b'{"__metadata__":{"manifest":"') + len(b'{"__metadata__":{"manifest":"')
    text = metadata[start : metadata.index(b'"}', start)].decode().replace('\\"', '"')
    save_file(tensors, path, {"manifest": text})
    with pytest.raises(UserError) as caught:
        manifest.read(tmp_path)
    assert message in str(caught.value) and path in str(caught.value)


@pytest.mark.parametrize(
    "info, message",
    [
        (lambda info: replace(info, splits={"train": (0, 4)}), "a split lies outside"),
        (lambda info: replace(info, shards=("../a.rec",)), "a pack lies in another folder"),
    ],
)
def test_contradictions_in_the_description_are_refused(tmp_path, info, message):
    write_manifest(tmp_path, manifest.encode(replace(example_manifest(), info=info(example_manifest().info))))
    with pytest.raises(UserError, match=message):
        manifest.read(tmp_path)


def test_files_that_are_no_manifest(tmp_path):
    content = manifest.encode(example_manifest())
    save_file({"a": np.zeros(1)}, os.path.join(tmp_path, manifest.NAME))
    with pytest.raises(UserError, match="prepare the data set again"):
        manifest.read(tmp_path)
    for broken in (b"", content[:-1], content[:100], content.replace(b'\\"version\\": 1', b'\\"version\\": 2')):
        write_manifest(tmp_path, broken)
        with pytest.raises(UserError, match="prepare the data set again"):
            manifest.read(tmp_path)
