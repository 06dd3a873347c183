"""Unpickling without running code: arrays of every protocol are read, every other name and form is refused."""

import collections
import io
import os
import pickle

import numpy as np
import pytest

from tests.helpers.files import Call
from zoo.data.formats import safe_pickle

DTYPES = ("f2", "f4", "f8", "i8", "u1", "b1")
TRACE = "executed"
RECONSTRUCT = np.zeros(0).__reduce__()[0]


def load(content, encoding="ASCII"):
    return safe_pickle.load(io.BytesIO(content), DTYPES, encoding)


def refused(content):
    with pytest.raises(ValueError) as caught:
        load(content)
    return str(caught.value)


def strings(*words):
    return b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in words)


def naming(module, name, *arguments):
    """Return a pickle of protocol 4 that calls module.name(*arguments), which need not exist."""
    return b"\x80\x04" + strings(module, name) + b"\x93(" + strings(*arguments) + b"tR."


ARRAYS = {
    "rows": np.arange(6, dtype=np.float32).reshape(2, 3),
    "columns": np.asfortranarray(np.eye(3, 2)),
    "integers": np.arange(3),
    "flags": np.array([True, False]),
    "scalar": np.array(2, np.float32),
    "big": np.arange(3, dtype=">f4"),
    "empty": np.zeros((0, 2), np.float32),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("numpy", [1, 2])
def test_arrays_of_every_protocol_and_numpy(protocol, numpy):
    content = pickle.dumps(ARRAYS, protocol=protocol)
    old, new = (b"numpy._core.", b"numpy.core.") if numpy == 1 else (b"numpy.core.", b"numpy._core.")
    if protocol > 3:  # the length of a string is in front of it
        for module in (b"multiarray", b"numeric"):
            content = content.replace(
                bytes([len(old + module)]) + old + module, bytes([len(new + module)]) + new + module
            )
        content = content[:2] + content[11:]  # without the frame, whose length may have changed; frames are optional
    content = content.replace(b"c" + old, b"c" + new)
    assert new in content and old not in content
    loaded = load(content)
    assert loaded.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(loaded[name].array, array) and loaded[name].array.shape == array.shape
        assert loaded[name].array.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize(
    "content", [{"a": [1, 2.5, None, True, "text", b"bytes", (1, 2)]}, collections.OrderedDict(a=b"")]
)
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_builtin_containers(content, protocol):
    assert load(pickle.dumps(content, protocol)) == content


def test_names_that_share_an_array():
    loaded = load(pickle.dumps({"a": ARRAYS["rows"], "b": ARRAYS["rows"]}, 4))
    assert loaded["a"] is loaded["b"]


def attacks():
    """Yield names and pickles that run code in Python's own unpickler, or might."""

    def attack(function, *arguments):
        return pickle.dumps({"a": np.ones(2, np.float32), "b": Call(function, *arguments)}, protocol=4)

    write = f"open({TRACE!r}, 'w').close()"
    yield "os.system", attack(os.system, f"echo > {TRACE}")
    yield "open", attack(open, TRACE, "w")
    yield "eval", attack(eval, write)
    yield "exec", attack(exec, write)
    yield "getattr", attack(getattr, Call(__import__, "os"), "system")
    yield "numpy.load", attack(np.load, TRACE, None, True)
    yield "numpy.fromfile", attack(np.fromfile, TRACE)
    yield "numpy.memmap", attack(np.memmap, TRACE, "u1", "w+", 0, (4,))
    yield "numpy.testing", naming("numpy.testing._private.utils", "runstring", write)
    yield "numpy attribute", naming("numpy", "testing.runstring", write)
    yield "dotted", naming("collections", "OrderedDict.fromkeys", "ab")
    yield "through a known name", naming("numpy.core.multiarray", "fromstring", "a")
    yield "old eval", b"\x80\x02c__builtin__\neval\nX" + len(write).to_bytes(4, "little") + write.encode() + b"\x85R."
    yield "inst", b"(S'echo > " + TRACE.encode() + b"'\nios\nsystem\n."
    yield "codec", naming("_codecs", "encode", "abc", "rot13")
    yield "persistent", b"\x80\x04\x8c\x01aQ."


@pytest.mark.parametrize("content", [pytest.param(content, id=name) for name, content in attacks()])
def test_nothing_is_executed(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    refused(content)
    assert os.listdir(tmp_path) == []


class Subclass(np.ndarray):
    pass


def array_with_state(shape, dtype, content, fortran=False):
    """Return a pickle of an array with any state."""
    return pickle.dumps({"a": WithState(shape, dtype, content, fortran)}, protocol=4)


class WithState:
    def __init__(self, shape, dtype, content, fortran=False):
        self.state = (1, shape, dtype, fortran, content)

    def __reduce__(self):
        return RECONSTRUCT, (np.ndarray, (0,), b"b"), self.state


def name_with_state(module, name, values):
    """Return a pickle that gives an allowed name, a function or a class, new attributes."""
    return b"\x80\x04" + strings(module, name) + b"\x93" + b"N}" + values + b"\x86b."


F4 = np.dtype("f4")


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"a": np.array([print, None], object)}, protocol=4),
        pickle.dumps({"a": np.zeros(2, [("x", "f4"), ("y", "O")])}, protocol=4),
        pickle.dumps({"a": np.array(["text"])}, protocol=4),
        pickle.dumps({"a": np.array(["2020"], "M8[D]")}, protocol=4),
        pickle.dumps({"a": np.ones(2).view(Subclass)}, protocol=4),
        pickle.dumps({"a": np.ones(2, np.complex64)}, protocol=4),
        array_with_state((2,), F4, bytes(4)),
        array_with_state((-1,), F4, bytes(4)),
        array_with_state((1,), F4, bytes(3)),
        array_with_state(3, F4, bytes(4)),
        array_with_state((1,), "f4", bytes(4)),
        array_with_state((1,), F4, [0.0]),
        array_with_state(("1",), F4, bytes(4)),
        array_with_state((True,), F4, bytes(4)),
        array_with_state((1 << 62, 4), F4, bytes(4)),
        name_with_state("collections", "OrderedDict", b"\x8c\x01aNs"),
        name_with_state("numpy", "ndarray", b"\x8c\x0c__setstate__Ns"),
        naming("numpy", "ndarray", "a"),
        naming("numpy", "dtype", "O"),
        naming("numpy", "dtype", "V8"),
        naming("numpy.core.multiarray", "_reconstruct", "a", "b", "c"),
        array_with_state((1,) * 33, F4, bytes(4)),
        array_with_state((1 << 62, 0), F4, b""),
        pickle.dumps({"a": Call(tuple, [1, 2])}, protocol=4),
        b"",
        b"not a pickle",
        b"\x80\x04.",
        b"\x80\x09N.",
        pickle.dumps({"a": np.ones(9)}, protocol=4)[:-20],
        b"\x80\x04\x96" + (1 << 60).to_bytes(8, "little") + b".",
        b"\x80\x02c__builtin__\nbytes\nK\x04\x85R.",
    ],
    ids=range(31),
)
def test_other_forms_are_refused(content):
    refused(content)
    assert not hasattr(collections.OrderedDict, "a")


def test_an_array_without_content():
    assert load(pickle.dumps(Call(RECONSTRUCT, np.ndarray, (0,), b"b"), protocol=4)).array is None


def test_dtypes_are_limited():
    assert "arrays of type 'i4' are not supported" in refused(pickle.dumps(np.ones(2, np.int32), 4))


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"\x80\x04(" + b"\x8f" * 600_000, "opcodes"),
        (b"\x80\x02})Ns", "a key"),
        (b"\x80\x02)" + b"2\x86" * 60 + b"}2Ns", "a key"),  # whose hash would take for ever
        (b"\x80\x02}\x8a\x09" + b"\x01" * 9 + b"Ns", "a key"),
        (b"\x80\x04\x8f(G" + bytes(8) + b"\x90", "a key"),
        (b"\x80\x04\x95" + b"\xff" * 7 + b"\x00N", "beyond the end"),
        (b"\x80\x04B\xff\xff\xff\x7f", "beyond the end"),
    ],
)
def test_files_that_ask_for_too_much(content, reason):
    assert reason in refused(content + b".")


def test_large_indices_and_deep_containers_take_little_memory():
    assert load(b"\x80\x02Nr\xff\xff\xff\x7f.") is None
    load(b"\x80\x02)" + b"\x85" * 100_000 + b"0N.")


def repeated(setup, unit, count):
    """Return a pickle of protocol 5: a list of the results of `count` equal units that use the memo of a setup."""
    return b"\x80\x05" + setup + b"](" + unit * count + b"e."


BIG = b"B" + (1 << 16).to_bytes(4, "little") + bytes(1 << 16)  # opcode for 64 KiB
BIG_TEXT = b"X" + BIG[1:]
BIG_BYTEARRAY = b"\x96" + (1 << 16).to_bytes(8, "little") + bytes(1 << 16)
DTYPE = strings("numpy", "dtype") + b"\x93" + strings("u1") + b"\x85R"
SHAPE = b"J" + (1 << 16).to_bytes(4, "little") + b"\x85"
FROMBUFFER = strings("numpy.core.numeric", "_frombuffer") + b"\x93"


@pytest.mark.parametrize(
    "setup, unit",
    [
        (
            strings("_codecs", "encode") + b"\x93q\x000" + BIG_TEXT + b"q\x010" + strings("latin1") + b"q\x020",
            b"h\x00h\x01h\x02\x86R",
        ),
        (
            FROMBUFFER + b"q\x000(" + BIG_BYTEARRAY + DTYPE + SHAPE + strings("C") + b"tq\x010",
            b"h\x00h\x01R",
        ),
        (
            FROMBUFFER + b"q\x000(" + BIG + DTYPE + SHAPE + strings("C") + b"tq\x010",
            b"h\x00h\x01R",
        ),
    ],
    ids=["encode", "frombuffer of a bytearray", "frombuffer of bytes"],
)
def test_memory_stays_in_proportion_to_the_file(setup, unit):
    """A file may not make the same data any number of times."""
    assert len(load(repeated(setup, unit, 1))) == 1
    assert "expands to more data than the file holds" in refused(repeated(setup, unit, 100))
