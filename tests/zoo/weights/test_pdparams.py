"""Paddle's .pdparams and variables of Paddle 1: what Paddle wrote is read without it."""

import collections
import os
import pickle
import struct
import zlib

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN
from tests.zoo.models.arcface.golden import drawn
from tests.zoo.weights.face_models import variable
from zoo.data.errors import UserError
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


def refused(tmp_path, content):
    (tmp_path / "a.pdparams").write_bytes(content)
    with pytest.raises(UserError, match="a.pdparams") as caught:
        files.read(str(tmp_path / "a.pdparams"))
    return str(caught.value)


def read(tmp_path, content, protocol=4):
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps(content, protocol=protocol))
    return files.read(str(tmp_path / "a.pdparams"))[0]


@pytest.mark.parametrize("name", ["protocol2", "nested"])
def test_files_of_paddle(name):
    """The values are those of state_dicts.drawn."""
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
    loaded = read(tmp_path, wrap(tensors))
    assert loaded.keys() == tensors.keys() and all(np.array_equal(loaded[name], tensors[name]) for name in tensors)


def test_a_shared_array_is_read_once(tmp_path):
    """Tied parameters stay one array, whose 16-bit floats are widened once."""
    half = np.ones(2, np.float16)
    loaded = read(tmp_path, {"a": half, "b": half, "c": half.copy()})
    assert loaded["a"] is loaded["b"] and loaded["a"] is not loaded["c"]
    assert all(array.dtype == np.float32 and array.tolist() == [1, 1] for array in loaded.values())


@pytest.mark.parametrize("content", [[], {}, 3, {"a": 3}, {3: np.ones(2)}, {"a": ("a", "b")}, {"a": {"b": np.ones(1)}}])
def test_other_content_is_refused(tmp_path, content):
    assert "paddle.save" in refused(tmp_path, pickle.dumps(content, protocol=4))


class Call:
    """Pickled as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps({"a": np.ones(2, np.float32), "b": Call(os.system, "echo > executed")}, protocol=4)
    assert "which would mean running code" in refused(tmp_path, content)
    assert os.listdir(tmp_path) == ["a.pdparams"]
    pickle.loads(content)  # the attack works
    assert "executed" in os.listdir(tmp_path)


@pytest.mark.parametrize("dtype", [object, "U4"])
def test_other_dtypes_are_refused(tmp_path, dtype):
    refused(tmp_path, pickle.dumps({"a": np.zeros(2, dtype)}, protocol=4))


def test_an_array_without_content_is_refused(tmp_path):
    content = pickle.dumps({"a": Call(np.zeros(0).__reduce__()[0], np.ndarray, (0,), b"b")}, protocol=4)
    assert "'a' is not an array" in refused(tmp_path, content)


# Written by the save operator of paddlepaddle 3.3.1: a whole file, and another without its 64 * 3 * 3 * 3 elements.
SAVED = bytes.fromhex("000000000000000000000000000000000400000008051001d1c7ab3e")
SAVED_HEADER = bytes.fromhex("000000000000000000000000000000000a00000008051040100310031003")


def test_the_helper_writes_what_paddle_writes():
    slope = drawn("prelu.weight", (1,))
    assert variable(slope) == SAVED
    assert variable(drawn("conv1.weight", (64, 3, 3, 3)))[: len(SAVED_HEADER)] == SAVED_HEADER


@pytest.mark.parametrize(
    "array", [np.float32([[1, 2, 3], [4, 5, 6]]), np.int64([7]), np.float16([0.5, -2]), np.zeros((200, 2), np.float32)]
)
def test_variables_are_read(tmp_path, array):
    (tmp_path / "x").write_bytes(variable(array))
    array_read = pdparams.read_variable(str(tmp_path / "x"))
    np.testing.assert_array_equal(array_read, array)
    assert array_read.dtype == (np.float32 if array.dtype == np.float16 else array.dtype)


def test_a_variable_with_levels_of_detail(tmp_path):
    plain = variable(np.float32([1, 2]))
    levels = struct.pack("<Q", 2) + struct.pack("<Q", 16) + bytes(16) + struct.pack("<Q", 8) + bytes(8)
    (tmp_path / "x").write_bytes(plain[:4] + levels + plain[12:])
    np.testing.assert_array_equal(pdparams.read_variable(str(tmp_path / "x")), [1, 2])


@pytest.mark.parametrize(
    "content, reason",
    [
        (SAVED[:-1], "buffer size must be"),
        (SAVED[:-4], "0 elements for a tensor of shape"),
        (SAVED[:22], "it is truncated"),
        (b"", "unpack"),
        (b"\1" + SAVED[1:], "version 1"),
        (SAVED + bytes(4), "2 elements"),
        (SAVED.replace(b"\x08\x05", b"\x08\x07"), "tensors of type 7"),
        (b"\x80\x02cos\nsystem\n" + bytes(40), "version"),
        (SAVED[:4] + b"\1" + bytes(7) + b"\xff" * 8 + SAVED[12:], ""),
    ],
    ids=range(9),
)
def test_other_variables_are_refused(tmp_path, content, reason):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match=f"x is not a complete variable of Paddle .*{reason}"):
        pdparams.read_variable(str(tmp_path / "x"))
    with pytest.raises(UserError, match="no such file|No such file"):
        pdparams.read_variable(str(tmp_path / "y"))
