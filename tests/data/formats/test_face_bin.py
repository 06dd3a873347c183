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


def test_arrays_of_numpy_1_and_2(tmp_path):
    """numpy 1 pickles the name numpy.core, numpy 2 numpy._core."""
    for protocol in (2, 4, 5):
        content = pickle.dumps((arrays(IMAGES), SAME), protocol)
        old = b"numpy.core." if b"numpy.core." in content else b"numpy._core."
        new = b"numpy._core." if old == b"numpy.core." else b"numpy.core."
        if protocol == 2:
            content = content.replace(b"c" + old, b"c" + new)
        else:
            for part in (b"multiarray", b"numeric"):
                content = content.replace(bytes([len(old + part)]) + old + part, bytes([len(new + part)]) + new + part)
            content = content[:2] + content[11:]  # without the frame, whose length has changed; frames are optional
        assert new in content and old not in content
        assert face_packs.read_bin(write(tmp_path, content))[:2] == (IMAGES, SAME)


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


class WrongShape:
    """Pickled as an array of bytes that claims to be larger than it is."""

    def __reduce__(self):
        make, arguments, state = np.zeros(3, np.uint8).__reduce__()
        return make, arguments, (state[0], (10**9, 1)) + state[2:]


def trace(tmp_path):
    """Return code that leaves a trace when it runs."""
    return f"open({str(tmp_path / TRACE)!r}, 'w')"


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    "function, name",
    [
        (eval, "in__.eval"),
        (exec, "in__.exec"),
        (os.system, "posix.system"),
        (getattr, "in__.getattr"),
        (np.load, "load"),
        (np.ndarray.tofile, "getattr"),
    ],
)
def test_a_file_that_calls_something_is_refused_and_nothing_runs(tmp_path, protocol, function, name):
    content = pickle.dumps((IMAGES, [Call(function, trace(tmp_path))] * 10), protocol)
    message = refused(tmp_path, content)
    assert name in message.replace("builtins", "__builtin__") and "running code" in message
    assert os.listdir(tmp_path) == ["lfw.bin"]


def test_python_would_run_such_a_file(tmp_path):
    """pickle.loads runs what the test above refuses."""
    pickle.loads(pickle.dumps(Call(eval, trace(tmp_path))))
    assert os.listdir(tmp_path) == [TRACE]


def naming(module, name, *rest):
    """Return a pickle of protocol 2 that names module.name and continues with `rest`."""
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"".join(rest) + b"."


@pytest.mark.parametrize(
    "content, reason",
    [
        (naming("numpy.core.multiarray", "_reconstruct", b"}U\x0b__globals__K\x01sb"), "cannot be given a state"),
        (naming("_codecs", "encode", b"N}U\x0c__defaults__Ns\x86b"), "cannot be given a state"),
        (naming("numpy", "ndarray", b"(K\x07tR"), "only _reconstruct"),
        (naming("_codecs", "encode", b"(X\x01\x00\x00\x00aX\x05\x00\x00\x00utf-8tR"), "'utf-8'"),
        (naming("os", "system"), "os.system"),
        (naming("zoo.data.formats.face_packs", "read_bin"), "zoo.data.formats.face_packs.read_bin"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", "beyond the end"),
        (b"", "damaged"),
        (b"\xff\xd8\xff\xe0", "damaged"),
        (pickle.dumps((IMAGES, SAME))[:-50], "damaged"),
    ],
)
def test_other_attacks_and_damage(tmp_path, content, reason):
    assert reason in refused(tmp_path, content)


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
        ((IMAGES[:19] + [WrongShape()], SAME), "an array of shape (1000000000, 1)"),
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
