"""New encodings of clips and images: frames, keyframes, sizes and quality."""

import io
import math

import av
import cv2
import numpy as np
import pytest
from PIL import Image

from tests.helpers import clips
from zoo.data.errors import BadSample
from zoo.data.packs import encoding
from zoo.data.packs.inspection import video_properties

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
