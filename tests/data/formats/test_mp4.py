"""Frames that MP4 files claim to have, before anything of them is decoded."""

import io
import struct

import numpy as np
import pytest

from tests.helpers import clips
from zoo.data.errors import BadSample
from zoo.data.formats.mp4 import check_frame_counts
from zoo.data.formats.video import read_frames


def box(name, *contents):
    content = b"".join(contents)
    return struct.pack(">I4s", 8 + len(content), name) + content


def long_box(name, content):
    return struct.pack(">I4sQ", 1, name, 16 + len(content)) + content


def track(count, size=1, kind=b"vide", make=box):
    handler = box(b"hdlr", bytes(8), kind, bytes(13))
    table = box(b"stsz", struct.pack(">III", 0, size, count))
    return make(b"trak", box(b"mdia", handler, box(b"minf", box(b"stbl", table))))


def fragment(count):
    return box(b"moof", box(b"traf", box(b"trun", struct.pack(">II", 0, count))))


START = box(b"ftyp", b"isom", bytes(4)) + box(b"mdat", bytes(100))


@pytest.mark.parametrize(
    "content",
    [
        START + box(b"moov", track(60_000_000)),
        START + box(b"moov", track(10), track(60_000_000)),
        START + long_box(b"moov", track(60_000_000, make=long_box)),
        box(b"moov", track(10, kind=b"soun")) + fragment(60_000_000),
        fragment(5) + fragment((1 << 32) - 1),
    ],
)
def test_more_frames_than_the_file_can_have(content, tmp_path):
    with pytest.raises(BadSample, match=r"claims \d+ frames in \d+ bytes"):
        check_frame_counts(io.BytesIO(content), len(content))
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(BadSample):
        read_frames(str(tmp_path / "a.mp4"), lambda count: np.arange(1))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"RIFF",
        bytes(1000),
        START,
        START + box(b"moov", track(1_000_000)),
        START + box(b"moov", track(60_000_000, size=0)),  # a size for each, which FFmpeg reads until the file ends
        START + box(b"moov", track(60_000_000, kind=b"soun")),
        START + box(b"moov", track(60_000_000))[:-4],
        struct.pack(">I4s", 7, b"free") + box(b"moov", track(60_000_000)),
    ],
)
def test_other_files_pass(content):
    check_frame_counts(io.BytesIO(content), len(content))


def test_a_large_file_may_have_more(tmp_path):
    content = START + box(b"moov", track(2_000_000))
    check_frame_counts(io.BytesIO(content), 8_000_000)
    with pytest.raises(BadSample):
        check_frame_counts(io.BytesIO(content), 7_999_999)


def test_real_files_pass(tmp_path):
    path = tmp_path / "a.mp4"
    clips.encode(path, np.zeros((3, 32, 32, 3), np.uint8))
    with open(path, "rb") as file:
        check_frame_counts(file, path.stat().st_size)


def test_too_many_boxes(monkeypatch):
    monkeypatch.setattr("zoo.data.formats.mp4.MAX_BOXES", 100)
    with pytest.raises(BadSample, match="more than 100 boxes"):
        check_frame_counts(io.BytesIO(box(b"free") * 101), 808)
