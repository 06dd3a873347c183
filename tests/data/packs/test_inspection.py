"""Properties of good files, and the ways in which files are broken."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.helpers import clips
from zoo.data.errors import BadSample
from zoo.data.packs.inspection import ImageProperties, image_properties, upright_frames, video_properties

FRAMES = 24


def noise_jpeg(size=64, quality=90):
    pixels = np.random.default_rng(0).integers(0, 255, (size, size, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return clips.encode(tmp_path_factory.mktemp("clips") / "a.mp4", clips.numbered(FRAMES), gop=6, rate=30)


def header_first(target):
    """Write a clip with its header in front of the frames, as web servers keep them."""
    return clips.encode(target, clips.numbered(FRAMES), gop=6, container_options={"movflags": "faststart"})


def bad(path, full=False):
    with pytest.raises(BadSample) as caught:
        video_properties(str(path), full)
    return str(caught.value)


def write(path, content):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("full", [False, True])
def test_properties_of_a_clip(clip, full):
    assert video_properties(clip, full) == ("h264", 96, 64, FRAMES, (30, 1))


@pytest.mark.parametrize("codec, name, suffix", [("libvpx-vp9", "vp9", "webm"), ("mpeg4", "mpeg4", "avi")])
def test_other_codecs(tmp_path, codec, name, suffix):
    path = clips.encode(tmp_path / f"a.{suffix}", clips.numbered(9), codec, gop=4)
    assert video_properties(path)[:4] == (name, 96, 64, 9)
    assert len(list(upright_frames(path))) == 9


def test_upright_frames_show_their_numbers(clip):
    frames = [frame.to_ndarray(format="rgb24") for frame in upright_frames(clip)]
    assert clips.read_numbers(frames) == list(range(FRAMES))


def test_a_file_that_is_no_video(tmp_path):
    assert bad(write(tmp_path / "a.mp4", b"")) == "the file is empty"
    assert bad(write(tmp_path / "b.mp4", b"<html>not found</html>" * 20)).startswith("cannot be decoded as video")
    assert bad(write(tmp_path / "c.mp4", np.random.default_rng(0).bytes(4000))).startswith("cannot be decoded as video")
    assert bad(write(tmp_path / "d.mp4", noise_jpeg())) == "it is an image, not a video"
    assert bad(clips.encode_audio(tmp_path / "e.mp4")) == "there is no video in this file"


def test_truncated_clips(tmp_path, clip):
    content = Path(clip).read_bytes()
    assert bad(write(tmp_path / "a.mp4", content[: len(content) * 3 // 4])).startswith("cannot be decoded as video")
    content = Path(header_first(tmp_path / "front.mp4")).read_bytes()
    assert "truncated" in bad(write(tmp_path / "b.mp4", content[: len(content) * 4 // 5]))


def test_a_header_that_claims_more_frames(tmp_path):
    path = clips.encode(tmp_path / "a.mp4", clips.numbered(10), gop=5)
    content = bytearray(Path(path).read_bytes())
    at = content.index(b"stsz") + 12  # after version, size of all samples, number of samples
    assert int.from_bytes(content[at : at + 4], "big") == 10
    content[at : at + 4] = (9).to_bytes(4, "big")
    reason = "its header claims 10 frames, but the file holds 9: it is truncated"
    assert bad(write(tmp_path / "b.mp4", bytes(content))) == reason


def test_damaged_frames_are_found_in_the_parts_that_are_decoded(tmp_path, clip):
    content = bytearray(Path(clip).read_bytes())
    start = content.index(b"mdat") + 4
    end = content.index(b"moov") - 4
    content[start + 40 : end] = np.random.default_rng(1).bytes(end - start - 40)
    assert bad(write(tmp_path / "a.mp4", bytes(content)))
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
        (b"<html></html>", "not an image of a supported format"),
        (content[: len(content) // 2], "cannot be decoded"),
        (content[: len(content) // 2] + bytes(len(content) // 2), "zeros only"),
    ):
        with pytest.raises(BadSample, match=reason):
            image_properties(broken)


def test_an_end_marker_in_a_thumbnail_is_not_the_end():
    """The marker of an embedded image comes before the scan of the image itself."""
    content = noise_jpeg()
    exif = b"\xff\xe1" + (2 + 4).to_bytes(2, "big") + b"\xff\xd9\xff\xd9"
    broken = content[:2] + exif + content[2 : len(content) // 2] + bytes(len(content))
    with pytest.raises(BadSample, match="zeros only"):
        image_properties(broken)
    assert image_properties(content[:2] + exif + content[2:]).codec == "jpeg"
