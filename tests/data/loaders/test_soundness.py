"""Files on which DALI would fail are found by their segments; all others pass."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.data.loaders.sets import smooth
from zoo.data.dataset import Pending
from zoo.data.loaders.packed import Failure
from zoo.data.loaders.soundness import check, find_problem
from zoo.data.transforms.geometry import Geometry

EOI = b"\xff\xd9"
FORMS = {
    "baseline": {"format": "JPEG"},
    "4:4:4": {"format": "JPEG", "subsampling": 0, "quality": 95},
    "optimized": {"format": "JPEG", "optimize": True},
    "progressive": {"format": "JPEG", "progressive": True},
    "restarts": {"format": "JPEG", "restart_marker_blocks": 2},
    "commented": {"format": "JPEG", "comment": b"a comment"},
    "png": {"format": "PNG"},
}


def encode(mode="RGB", **form):
    file = io.BytesIO()
    Image.fromarray(smooth(40, 56, 3)).convert(mode).save(file, **form)
    return file.getvalue()


def segment(file, marker, number=0):
    """Return begin and end of a segment's content."""
    at = 2
    while True:
        (length,) = struct.unpack_from(">H", file, at + 2)
        if file[at + 1] == marker:
            if not number:
                return at + 4, at + 2 + length
            number -= 1
        at += 2 + length


def change(file, at, value):
    return file[:at] + bytes([value]) + file[at + 1 :]


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("form", FORMS)
def test_intact_files_pass(form, mode):
    assert find_problem(encode(mode, **FORMS[form])) is None


def test_fill_bytes_between_segments_pass():
    file = encode(**FORMS["baseline"])
    begin, _ = segment(file, 0xC4)
    assert find_problem(file[: begin - 4] + b"\xff\xff" + file[begin - 4 :]) is None


@pytest.mark.parametrize("form", [form for form in FORMS if form != "png"])
def test_every_cut_in_front_of_the_pixels_is_found(form):
    file = encode(**FORMS[form])
    _, scan = segment(file, 0xDA)
    for cut in range(2, scan):
        assert find_problem(file[:cut] + EOI), cut
    assert find_problem(file[: scan + 3] + EOI) is None or form == "progressive"  # pixels may be cut


def test_damaged_tables_are_found():
    file = encode(**FORMS["baseline"])
    huffman, _ = segment(file, 0xC4)
    quantization, _ = segment(file, 0xDB)
    frame, _ = segment(file, 0xC0)
    scan, _ = segment(file, 0xDA)
    found = {
        "a Huffman table is damaged": [(huffman, 0x20), (huffman + 1, 3), (huffman + 1, 255)],
        "a quantization table is damaged": [(quantization, 0x20), (quantization, 0x10)],
        "a Huffman table is missing": [(scan + 2, 0x22)],
        "a quantization table is missing": [(frame + 8, 3)],
        "the frame is damaged": [(frame + 5, 2), (frame + 7, 0x51), (frame + 9, 1)],
        "a scan is damaged": [(scan, 5), (scan + 1, 9), (scan + 8, 3)],
    }
    for problem, changes in found.items():
        for at, value in changes:
            assert find_problem(change(file, at, value)) == problem, (problem, at, value)


def test_a_damaged_table_of_a_later_scan_is_found():
    file = encode(**FORMS["progressive"])
    _, first_scan = segment(file, 0xDA)
    later = file.index(b"\xff\xc4", first_scan)
    assert find_problem(change(file, later + 5, 255)) == "a Huffman table is damaged"
    assert find_problem(file[: later + 8] + EOI) == "the file ends within a segment"


def test_chunks_of_png_files():
    file = encode(**FORMS["png"])
    data = file.index(b"IDAT") + 20
    assert find_problem(change(file, data, file[data] ^ 1)) == "the checksum of 'IDAT' is wrong"
    assert find_problem(file[:-12]) == "the file has no end"
    assert find_problem(file[: data + 5]) == "the file ends within a segment"
    unknown = struct.pack(">I4s", 3, b"teSt") + b"abc"
    unknown += struct.pack(">I", zlib.crc32(unknown[4:]))
    assert find_problem(file[:-12] + unknown + file[-12:]) is None


def test_samples_with_a_damaged_file_fail():
    good, bad = encode(**FORMS["baseline"]), encode(**FORMS["baseline"])[:300] + EOI
    label = np.zeros(())
    check([{"image": Pending((good, good), Geometry(), True), "label": label}, {"label": label}])
    with pytest.raises(Failure, match="ends within a segment|damaged"):
        check([{"image": Pending((good,), Geometry())}, {"image": Pending((good, bad), Geometry(), True)}])
