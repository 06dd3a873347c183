"""Paddle's files: what Paddle itself wrote is read, and nothing that a file asks for is ever run."""

import collections
import os
import pickle
import zlib

import numpy as np
import pytest

from data.errors import UserError
from tests.helpers.paths import GOLDEN
from zoo.weights import files, pdparams

SHAPES = {
    "conv1.weight": (3, 2, 3, 3),
    "bn1.weight": (3,),
    "bn1.bias": (3,),
    "bn1._mean": (3,),
    "bn1._variance": (3,),
    "fc.weight": (3, 4),
    "fc.bias": (4,),
}
TRACE = "executed"


class Calls:
    """Pickled as a call of any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def raw(module, name, *arguments):
    """A pickle of protocol 4 that calls module.name(*arguments), which need not exist."""
    text = b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name))
    given = b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in arguments)
    return b"\x80\x04" + text + b"\x93(" + given + b"tR."


def refused(tmp_path, content):
    (tmp_path / "a.pdparams").write_bytes(content)
    with pytest.raises(UserError, match="a.pdparams") as caught:
        files.read(str(tmp_path / "a.pdparams"))
    return str(caught.value)


def read(tmp_path, content, protocol=4):
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps(content, protocol=protocol))
    return files.read(str(tmp_path / "a.pdparams"))[0]


@pytest.mark.parametrize("name", ["protocol2", "protocol4", "nested"])
def test_what_paddle_wrote(name):
    """The values, as test_origins.drawn gave them to Paddle."""
    tensors, metadata = files.read(str(GOLDEN / f"paddle_{name}.pdparams"))
    assert {key: array.shape for key, array in tensors.items()} == SHAPES and metadata == {}
    rng = np.random.default_rng(zlib.crc32(b"bn1._mean"))
    assert np.array_equal(tensors["bn1._mean"], (0.1 * rng.standard_normal(3)).astype(np.float32))
    rng = np.random.default_rng(zlib.crc32(b"fc.weight"))
    assert np.array_equal(tensors["fc.weight"], rng.standard_normal((3, 4), dtype=np.float32) * np.float32(0.5))


def test_16_bit_floats_of_paddle():
    tensors, _ = files.read(str(GOLDEN / "paddle_kinds.pdparams"))
    assert tensors["brain"].tolist() == [1.5, -2] and tensors["half"].tolist() == [1.5, -2]
    assert tensors["scalar"].shape == () and tensors["scalar"] == 0.5
    assert {array.dtype for array in tensors.values()} == {np.dtype(np.float32)}


ARRAYS = {
    "rows": np.arange(6, dtype=np.float32).reshape(2, 3),
    "columns": np.asfortranarray(np.eye(3, 2)),
    "whole": np.arange(3),
    "flags": np.array([True, False]),
    "scalar": np.array(2, np.float32),
    "big": np.arange(3, dtype=">f4"),
    "empty": np.zeros((0, 2), np.float32),
}


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("numpy", [1, 2])
def test_arrays_of_every_protocol_and_numpy(tmp_path, protocol, numpy):
    content = pickle.dumps(ARRAYS, protocol=protocol)
    if numpy == 2:  # as numpy 2 spells it; the strings of protocol 4 are counted, and so are its frames, here left out
        content = content.replace(b"\x8c\x15numpy.core.m", b"\x8c\x16numpy._core.m")
        content = content.replace(b"numpy.core.m", b"numpy._core.m")
        content = content[:2] + content[11:] if protocol == 4 else content
    assert (b"numpy._core.m" in content) == (numpy == 2)
    (tmp_path / "a.pdparams").write_bytes(content)
    tensors = pdparams.read(str(tmp_path / "a.pdparams"))
    assert tensors.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(tensors[name], array) and tensors[name].shape == array.shape
        assert tensors[name].dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tensors: tensors,
        lambda tensors: {"epoch": 3, "state_dict": tensors},
        lambda tensors: {"model": tensors},
        collections.OrderedDict,
        lambda tensors: {"state_dict": collections.OrderedDict(tensors)},
        lambda tensors: {name: (f"linear_0.{name}", array) for name, array in tensors.items()},
        lambda tensors: {**tensors, "StructuredToParameterName@@": {"a": "linear_0.w_0"}},
    ],
)
def test_the_forms_of_a_state_dict(tmp_path, wrap):
    tensors = {"a": np.ones(2, np.float32), "b": np.zeros((), np.float32)}
    found = read(tmp_path, wrap(tensors))
    assert found.keys() == tensors.keys() and all(np.array_equal(found[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("content", [[], {}, 3, {"a": 3}, {3: np.ones(2)}, {"a": ("a", "b")}, {"a": {"b": np.ones(1)}}])
def test_what_is_no_state_dict(tmp_path, content):
    assert "paddle.save" in refused(tmp_path, pickle.dumps(content, protocol=4))


def dangerous():
    def attack(function, *arguments):
        return pickle.dumps({"a": np.ones(2, np.float32), "b": Calls(function, *arguments)}, protocol=4)

    write = f"open({TRACE!r}, 'w').close()"
    yield "os.system", attack(os.system, f"echo > {TRACE}")
    yield "open", attack(open, TRACE, "w")
    yield "eval", attack(eval, write)
    yield "exec", attack(exec, write)
    yield "getattr", attack(getattr, Calls(__import__, "os"), "system")
    yield "numpy.load", attack(np.load, TRACE, None, True)
    yield "numpy.fromfile", attack(np.fromfile, TRACE)
    yield "numpy.memmap", attack(np.memmap, TRACE, "u1", "w+", 0, (4,))
    yield "numpy.testing", raw("numpy.testing._private.utils", "runstring", write)
    yield "numpy attribute", raw("numpy", "testing.runstring", write)
    yield "dotted", raw("collections", "OrderedDict.fromkeys", "ab")
    yield "through a known name", raw("numpy.core.multiarray", "fromstring", "a")
    yield "old eval", b"\x80\x02c__builtin__\neval\nX" + len(write).to_bytes(4, "little") + write.encode() + b"\x85R."
    yield "inst", b"(S'echo > " + TRACE.encode() + b"'\nios\nsystem\n."
    yield "codec", raw("_codecs", "encode", "abc", "rot13")
    yield "persistent", b"\x80\x04\x8c\x01aQ."


@pytest.mark.parametrize("content", [pytest.param(content, id=name) for name, content in dangerous()])
def test_nothing_is_executed(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    assert "which would mean running code" in refused(tmp_path, content)
    assert os.listdir(tmp_path) == ["a.pdparams"]


def test_the_traps_do_work(tmp_path, monkeypatch):
    """Else the test above would prove nothing."""
    monkeypatch.chdir(tmp_path)
    for name, content in dangerous():
        if name in ("os.system", "open", "eval", "exec", "numpy.memmap", "old eval", "inst"):
            pickle.loads(content)
            assert os.path.exists(TRACE), name
            os.remove(TRACE)


class Sub(np.ndarray):
    pass


def state(shape, kind, content, fortran=False):
    """A pickle of an array with this state, whatever it is."""

    class Stated:
        def __reduce__(self):
            return np.core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), (1, shape, kind, fortran, content)

    return pickle.dumps({"a": Stated()}, protocol=4)


def stated_known(module, name, values):
    """A pickle that gives a known name, a function or a class, new attributes."""
    words = b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name))
    return b"\x80\x04" + words + b"\x93" + b"N}" + values + b"\x86b."


F4 = np.dtype("f4")


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"a": np.array([print, None], object)}, protocol=4),
        pickle.dumps({"a": np.zeros(2, [("x", "f4"), ("y", "O")])}, protocol=4),
        pickle.dumps({"a": np.array(["text"])}, protocol=4),
        pickle.dumps({"a": np.array(["2020"], "M8[D]")}, protocol=4),
        pickle.dumps({"a": np.ones(2).view(Sub)}, protocol=4),
        pickle.dumps({"a": np.ones(2, np.complex64)}, protocol=4),
        state((2,), F4, bytes(4)),
        state((-1,), F4, bytes(4)),
        state((1,), F4, bytes(3)),
        state(3, F4, bytes(4)),
        state((1,), "f4", bytes(4)),
        state((1,), F4, [0.0]),
        state(("1",), F4, bytes(4)),
        state((True,), F4, bytes(4)),
        state((1 << 62, 4), F4, bytes(4)),
        stated_known("collections", "OrderedDict", b"\x8c\x01aNs"),
        stated_known("numpy", "ndarray", b"\x8c\x0c__setstate__Ns"),
        raw("numpy", "ndarray", "a"),
        raw("numpy", "dtype", "O"),
        raw("numpy", "dtype", "V8"),
        raw("numpy.core.multiarray", "_reconstruct", "a", "b", "c"),
        b"",
        b"not a pickle",
        b"\x80\x04.",
        b"\x80\x09N.",
        pickle.dumps({"a": np.ones(9)}, protocol=4)[:-20],
        b"\x80\x04\x96" + (1 << 60).to_bytes(8, "little") + b".",
        b"\x80\x02c__builtin__\nbytes\nK\x04\x85R.",
    ],
    ids=range(28),
)
def test_what_is_no_plain_array_is_refused(tmp_path, content):
    known = dict(pdparams.KNOWN)
    refused(tmp_path, content)
    assert known == pdparams.KNOWN and not hasattr(collections.OrderedDict, "a")


def test_an_array_without_content_is_refused(tmp_path):
    class Bare:
        def __reduce__(self):
            return np.core.multiarray._reconstruct, (np.ndarray, (0,), b"b")

    assert "'a' is no array" in refused(tmp_path, pickle.dumps({"a": Bare()}, protocol=4))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="b.pdparams: no such file"):
        files.read(str(tmp_path / "b.pdparams"))
