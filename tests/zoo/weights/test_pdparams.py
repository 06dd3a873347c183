"""Paddle's .pdparams: what Paddle wrote is read without it, and everything but named arrays is refused."""

import collections
import os
import pickle
import zlib

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN
from zoo.data.errors import UserError
from zoo.weights import files

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


@pytest.mark.parametrize("name", ["protocol2", "protocol4", "nested"])
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


@pytest.mark.parametrize("dtype", [np.complex64, "U4", object, "M8[D]"])
def test_other_dtypes_are_refused(tmp_path, dtype):
    refused(tmp_path, pickle.dumps({"a": np.zeros(2, dtype)}, protocol=4))


def test_an_array_without_content_is_refused(tmp_path):
    content = pickle.dumps({"a": Call(np.zeros(0).__reduce__()[0], np.ndarray, (0,), b"b")}, protocol=4)
    assert "'a' is not an array" in refused(tmp_path, content)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="b.pdparams: no such file"):
        files.read(str(tmp_path / "b.pdparams"))
