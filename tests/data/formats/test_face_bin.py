"""Verification .bin files of insightface: every pickle protocol, refusal of code, and of malformed content."""

import os
import pickle
import struct

import numpy as np
import pytest

from tests.helpers import packs
from zoo.data.errors import UserError
from zoo.data.formats import face_packs

TRACE = "executed"
IMAGES = [packs.encoded_image(value) for value in range(20)]
SAME = [number % 3 == 0 for number in range(10)]


def arrays(images):
    """Return the arrays of cv2.imencode."""
    return [np.frombuffer(image, np.uint8).reshape(-1, 1).copy() for image in images]


def write(tmp_path, content, name="lfw.bin"):
    (tmp_path / name).write_bytes(content)
    return str(tmp_path / name)


def refused(tmp_path, content):
    with pytest.raises(UserError) as caught:
        face_packs.read_bin(write(tmp_path, content))
    assert str(tmp_path / "lfw.bin") in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("images", [IMAGES, arrays(IMAGES)], ids=["bytes", "arrays"])
def test_every_protocol(tmp_path, protocol, images):
    content = pickle.dumps((images, SAME), protocol)
    assert face_packs.read_bin(write(tmp_path, content)) == (IMAGES, SAME, content)


def test_strings_of_python_2(tmp_path):
    """Python 2 pickled a str by opcode U with one byte for its length, or T with four."""
    items = b"".join(b"T" + struct.pack("<i", len(image)) + image for image in IMAGES)
    content = b"\x80\x02](" + items + b"e](" + b"".join(b"\x88" if same else b"\x89" for same in SAME) + b"e\x86."
    assert face_packs.read_bin(write(tmp_path, content))[:2] == (IMAGES, SAME)


class Call:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_file_that_calls_something_is_refused_and_nothing_runs(tmp_path, protocol):
    """tests/data/formats/test_safe_pickle.py has further attacks."""
    trace = f"open({str(tmp_path / TRACE)!r}, 'w')"
    content = pickle.dumps((IMAGES, [Call(eval, trace)] * 10), protocol)
    assert "running code" in refused(tmp_path, content) and os.listdir(tmp_path) == ["lfw.bin"]
    pickle.loads(content)  # Python would run it
    assert TRACE in os.listdir(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0", pickle.dumps((IMAGES, SAME))[:-50]])
def test_damage(tmp_path, content):
    assert "damaged" in refused(tmp_path, content)


@pytest.mark.parametrize(
    "content, reason",
    [
        ([1], "not a verification set"),
        ((IMAGES, SAME, SAME), "not a verification set"),
        (7, "not a verification set"),
        ((IMAGES, tuple(SAME)), "not a verification set"),
        ((IMAGES[:19], SAME), "19 images for 10 pairs"),
        (([], []), "0 images for 0 pairs"),
        ((IMAGES, SAME[:9] + [2]), "the flag of pair 9"),
        ((IMAGES, SAME[:9] + [None]), "the flag of pair 9"),
        ((IMAGES, SAME[:9] + [1.0]), "the flag of pair 9"),
        ((IMAGES[:13] + ["text"] + IMAGES[14:], SAME), "image 13 (of pair 6)"),
        ((IMAGES[:13] + [b""] + IMAGES[14:], SAME), "image 13 (of pair 6)"),
        ((IMAGES[:19] + [np.zeros(4, np.float32)], SAME), "arrays of type 'f4' are not supported"),
    ],
)
def test_content_that_is_not_a_verification_set(tmp_path, content, reason):
    assert reason in refused(tmp_path, pickle.dumps(content, 4))


def test_a_file_larger_than_any_set(tmp_path, monkeypatch):
    content = pickle.dumps((IMAGES, SAME))
    monkeypatch.setattr(face_packs, "MAX_BIN_BYTES", len(content))
    assert face_packs.read_bin(write(tmp_path, content))[0] == IMAGES
    monkeypatch.setattr(face_packs, "MAX_BIN_BYTES", len(content) - 1)
    assert f"it has {len(content)} bytes, the limit is" in refused(tmp_path, content)
