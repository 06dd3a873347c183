"""Files and JSON that are read, and what is refused before: other files, too many bytes, pixels or values."""

import json
import math
import os

import pytest

from zoo.data.errors import BadSample
from zoo.data.formats import regular


def test_a_regular_file_or_a_link_to_it_is_read(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"content")
    os.symlink(tmp_path / "file", tmp_path / "link")
    assert regular.read(str(tmp_path / "file")) == regular.read(str(tmp_path / "link")) == b"content"
    monkeypatch.setattr(regular, "MAX_BYTES", 7)
    assert regular.read(str(tmp_path / "file")) == b"content"


def test_whatever_would_never_end_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(BadSample, match="not a regular file"):
            regular.read(str(path))


def test_a_file_with_terabytes_of_holes_is_not_read(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadSample, match="it has 1099511627776 bytes, the limit is 1073741824"):
        regular.read(str(tmp_path / "file"))


def test_limits_themselves_are_allowed():
    regular.check_pixels(1365, regular.MAX_SIDE)
    with pytest.raises(BadSample, match=f"its header claims 1366 x 65535 pixels, the limit is {regular.MAX_PIXELS}"):
        regular.check_pixels(1366, regular.MAX_SIDE)
    for size in ((1, regular.MAX_SIDE + 1), (regular.MAX_SIDE + 1, 1)):
        with pytest.raises(BadSample, match="the limit of a side is 65535"):
            regular.check_pixels(*size)
    regular.check_clip(3840, 2160, 80)
    with pytest.raises(BadSample):
        regular.check_clip(3840, 2160, 90)


def test_images_need_a_byte_per_so_many_pixels_beyond_the_free_ones():
    share = regular.Share(free=1000, per_byte=4)
    regular.check_share(10, 100, 0, share)
    regular.check_share(40, 100, 1000, share)
    for width, size in ((11, 0), (11, 274), (41, 1000)):
        with pytest.raises(BadSample, match=f"its header claims {width} x 100 pixels, the limit is"):
            regular.check_share(width, 100, size, share)
    with pytest.raises(BadSample, match=f"the limit is {regular.MAX_PIXELS} in all"):
        regular.check_share(1, regular.MAX_PIXELS + 1, 1 << 40, share)


def test_frames_of_a_video_need_bytes():
    regular.check_pixels(1920, 1088, regular.frame_pixels(0))
    regular.check_pixels(3840, 2160, regular.frame_pixels(520_000))
    regular.check_pixels(8192, 4320, regular.frame_pixels(1 << 22))
    for size, file in (((3840, 2160), 518_000), ((8192, 4321), 1 << 30)):
        with pytest.raises(BadSample):
            regular.check_pixels(*size, regular.frame_pixels(file))


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "ü"]}, [], 3, "text", {"": {"": {}}}])
def test_values_within_the_budget(tmp_path, value):
    assert regular.parse_json(json.dumps(value)) == value
    (tmp_path / "a.json").write_text("\ufeff" + json.dumps(value), encoding="utf-8")
    assert regular.load_json(str(tmp_path / "a.json")) == value


@pytest.mark.parametrize("item", ["[],", "{},", '{"a":{}},', "0,"])
def test_memory_and_depth(item):
    with pytest.raises(ValueError, match="more memory than a file of its size should"):
        regular.parse_json("[" + item * (regular.JSON_FREE_BYTES // 50) + "0]")
    with pytest.raises(ValueError, match="too many levels"):
        regular.parse_json("[" * 100_000 + "1" + "]" * 100_000)


def test_other_texts_and_files(tmp_path):
    for text in ("", "{", "[1 2]", "nan", "1" * 5000):
        with pytest.raises(ValueError):
            regular.parse_json(text)
    with pytest.raises(BadSample, match="not a regular file"):
        regular.load_json("/dev/zero")
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError):
        regular.load_json(str(tmp_path / "a.json"))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite(number):
    assert not math.isfinite(regular.parse_json(f"[{number}]")[0])
    with pytest.raises(ValueError, match=f"the number {number} is not finite"):
        regular.parse_json(f"[{number}]", finite=True)
    assert regular.parse_json("[1e308, -2.5, 3]", finite=True) == [1e308, -2.5, 3]
