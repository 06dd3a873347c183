"""Folders of numbered images as clips: gaps, wrong counts and damaged files."""

import io
import os
import re
import tracemalloc

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.helpers.clips import numbered, read_numbers, sampling
from zoo.data.errors import BadSample
from zoo.data.formats import frame_folders, regular


def image_frames(*args, **options):
    return np.stack(frame_folders.decode_images(frame_folders.read_images(*args, **options)))


def write_images(folder, count=10, template="img_{:05d}.jpg", first=1, width=96, height=64):
    os.makedirs(folder)
    for number, frame in enumerate(numbered(count, width, height), first):
        cv2.imwrite(os.path.join(folder, template.format(number)), frame)
    return str(folder)


def read_sampled(folder, numbers, count=10, template="img_{:05d}.jpg", first=1, **options):
    return read_numbers(image_frames(folder, template, first, count, sampling(numbers), **options))


@pytest.mark.parametrize(
    "template, first",
    [
        ("img_{:05d}.jpg", 1),
        ("img_{:05}.jpg", 0),
        ("{:06d}.jpg", 1),
        ("frame-{:d}.png", 7),
        ("{}.jpg", 1),
        ("a+b_({:03d}).jpg", 1),
    ],
)
def test_frame_folders(template, first, tmp_path):
    folder = write_images(tmp_path / "clip 1.mp4", template=template, first=first)
    assert read_sampled(folder, [0, 9, 4, 4], template=template, first=first) == [0, 9, 4, 4]
    assert image_frames(folder, template, first, 10, sampling([[1, 2]])).shape == (2, 64, 96, 3)


def test_frame_folders_with_a_gap_are_sampled_from_the_existing_images(tmp_path):
    folder = write_images(tmp_path / "clip")
    for number in (3, 4):
        os.remove(os.path.join(folder, f"img_{number:05d}.jpg"))
    assert read_sampled(folder, [0, 1]) == [0, 1]  # no sampled image is missing
    lengths = []
    frames = image_frames(folder, "img_{:05d}.jpg", 1, 10, lambda n: lengths.append(n) or np.arange(n))
    assert lengths == [10, 8] and read_numbers(frames) == [0, 1, 4, 5, 6, 7, 8, 9]


def test_frame_folders_shorter_than_in_the_list(tmp_path):
    folder = write_images(tmp_path / "clip")
    frames = image_frames(folder, "img_{:05d}.jpg", 1, 300, lambda n: np.linspace(0, n - 1, 4).astype(int))
    assert read_numbers(frames) == [0, 3, 6, 9]
    with pytest.raises(BadSample, match="10 frame"):
        read_sampled(folder, [200], count=300, min_frames=11)


def test_existing_images_are_sorted_by_number_not_by_name(tmp_path):
    folder = write_images(tmp_path / "clip", count=12, template="{}.png")  # "10.png" sorts before "2.png" as text
    os.remove(os.path.join(folder, "1.png"))
    (tmp_path / "clip" / "notes.txt").write_text("not an image")
    (tmp_path / "clip" / "x3.png").write_text("does not match the template")
    frames = image_frames(folder, "{}.png", 1, 12, lambda n: np.arange(n))
    assert read_numbers(frames) == list(range(1, 12))


def test_files_that_are_no_whole_images(tmp_path):
    folder = write_images(tmp_path / "clip", count=5)
    path = tmp_path / "clip" / "img_00004.jpg"
    intact = path.read_bytes()
    for content in (b"", b"text", np.random.default_rng(0).bytes(3000), intact[: len(intact) // 4]):
        path.write_bytes(content)
        assert read_sampled(folder, [0, 4], count=5) == [0, 4]
        with pytest.raises(BadSample, match="img_00004.jpg"):
            read_sampled(folder, [0, 3], count=5)
    for make in (os.mkdir, os.mkfifo, lambda name: os.symlink("/dev/zero", name)):
        (os.rmdir if path.is_dir() else os.remove)(path)
        make(path)
        with pytest.raises(BadSample, match="not a regular file"):
            read_sampled(folder, [3], count=5)


def test_images_of_different_sizes(tmp_path):
    folder = write_images(tmp_path / "clip")
    cv2.imwrite(os.path.join(folder, "img_00002.jpg"), np.zeros((10, 10, 3), np.uint8))
    with pytest.raises(BadSample, match="size"):
        read_sampled(folder, [0, 1])


def test_gray_and_color_images_are_in_rgb_order(tmp_path):
    os.makedirs(tmp_path / "clip")
    cv2.imwrite(str(tmp_path / "clip" / "1.png"), np.full((8, 8, 3), (40, 100, 200), np.uint8))  # OpenCV: blue first
    cv2.imwrite(str(tmp_path / "clip" / "2.png"), np.full((8, 8), 77, np.uint8))
    frames = image_frames(str(tmp_path / "clip"), "{}.png", 1, 2, sampling([0, 1]))
    assert frames[0, 0, 0].tolist() == [200, 100, 40] and frames[1, 0, 0].tolist() == [77, 77, 77]


def test_missing_empty_and_short_frame_folders(tmp_path):
    os.makedirs(tmp_path / "empty")
    with pytest.raises(BadSample, match="no such folder"):
        read_sampled(str(tmp_path / "missing"), [0])
    with pytest.raises(BadSample, match="it holds no numbered file"):
        read_sampled(str(tmp_path / "empty"), [0])
    with pytest.raises(BadSample, match="too short: 2 frame.*min_frames is 3"):
        read_sampled(str(tmp_path / "empty"), [0], count=2, min_frames=3)


@pytest.mark.parametrize(
    "name, template",
    [
        ("frame000000.jpg", "frame{:06d}.jpg"),
        ("img_00001.png", "img_{:05d}.png"),
        ("v_2_01.jpg", "v_2_{:02d}.jpg"),
        ("7.jpeg", "{:01d}.jpeg"),
    ],
)
def test_images_of_another_template_are_named(name, template, tmp_path):
    (tmp_path / name).write_bytes(b"")
    reason = (
        f"data.frame_template says, img_{{:05d}}.jpg (img_00001.jpg); data.frame_template={template} names its {name}"
    )
    with pytest.raises(BadSample, match=re.escape(reason)):
        read_sampled(str(tmp_path), [0])


def test_a_list_that_says_another_number_of_frames(tmp_path):
    folder = write_images(tmp_path / "clip")
    assert frame_folders.difference(folder, "img_{:05d}.jpg", 1, 10) == ""
    for first, count in ((1, 9), (1, 12), (0, 10)):
        text = frame_folders.difference(folder, "img_{:05d}.jpg", first, count)
        assert text.startswith(f"the list says {count} frames, the folder has 10, with numbers from 1 to 10")
        assert text.endswith(f"data.first_frame is {first}")


def test_a_list_that_says_a_million_frames_takes_no_memory(tmp_path):
    folder = write_images(tmp_path / "clip")
    tracemalloc.start()
    try:
        assert frame_folders.difference(folder, "img_{:05d}.jpg", 1, 10**6).startswith("the list says 1000000 frames")
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("extension", ["jpg", "png"])
def test_images_and_clips_that_are_too_large(tmp_path, monkeypatch, extension):
    template = "img_{:05d}." + extension
    folder = write_images(tmp_path / "clip", template=template)
    monkeypatch.setattr(regular, "MAX_CLIP_BYTES", 2 * 3 * 96 * 64)
    assert read_sampled(folder, [0, 1], template=template) == [0, 1]
    with pytest.raises(BadSample, match="3 frames of 96 x 64 pixels have"):
        read_sampled(folder, [0, 1, 2], template=template)
    monkeypatch.setattr(regular, "MAX_FRAME_PIXELS", 96 * 64 - 1)
    with pytest.raises(BadSample, match="its header claims 96 x 64 pixels"):
        read_sampled(folder, [0], template=template)


@pytest.mark.parametrize("form, mode", [("PNG", "P"), ("PNG", "L"), ("PNG", "RGBA"), ("BMP", "RGB"), ("WEBP", "RGB")])
def test_other_formats_are_decoded_as_images_are(tmp_path, form, mode):
    content = io.BytesIO()
    image = Image.fromarray(np.full((8, 8, 3), (200, 100, 40), np.uint8)).convert(mode)
    image.save(content, form, **({"lossless": True} if form == "WEBP" else {}))
    (frame,) = frame_folders.decode_images([frame_folders.EncodedFrame("a", content.getvalue())])
    assert np.array_equal(frame, np.asarray(image.convert("RGB")))


def test_a_png_whose_chunk_promises_gigabytes(tmp_path):
    """OpenCV alone would allocate them."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x10\0\0\0\x10\x08\x06\0\0\0\x1f\xf3\xffa"
    content = head + b"\x7f\xff\xff\xffeXIf" + bytes(100) + b"\0\0\0\0IEND\xaeB`\x82"
    with pytest.raises(BadSample, match="a: cannot be decoded as an image"):
        frame_folders.decode_images([frame_folders.EncodedFrame("a", content)])
