"""zoo/parity/record.py."""

import json

import numpy as np
import pytest

from tests.helpers import proofs
from zoo.data.errors import UserError
from zoo.parity import record
from zoo.parity.record import MAX_ELEMENTS
from zoo.weights import files


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def made(**tensors):
    result = record.empty("torch", "fp64", {})
    for key, value in tensors.items():
        result.add(key, value)
    return result


@pytest.mark.parametrize(
    "shape, kept",
    [
        ((), ()),
        ((5,), (5,)),
        ((0, 3), (0, 3)),
        ((128, 128), (128, 128)),
        ((129, 128), (128, 128)),
        ((7, 3000), (5, 3000)),
        ((20000,), (MAX_ELEMENTS,)),
        ((9, 4, 64, 64), (1, 4, 64, 64)),
        ((9, 3, 64, 64), (1, 3, 64, 64)),
        ((9, 2, 64, 64), (2, 2, 64, 64)),
        ((2, 3, 224, 224), (1, 3, 24, 224)),  # rows of all channels
        ((2, 512, 56, 56), (1, 292, 1, 56)),
        ((2, 3, 4, 100000), (1, 1, 1, MAX_ELEMENTS)),
        ((3, 100000), (1, MAX_ELEMENTS)),
    ],
)
def test_an_excerpt_is_of_whole_samples(shape, kept):
    values = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape)
    excerpt = record.excerpt(values)
    assert excerpt.shape == kept and excerpt.size <= MAX_ELEMENTS
    np.testing.assert_array_equal(excerpt, values[tuple(map(slice, kept))])


def test_channel_statistics_are_of_the_whole_tensor():
    values = normal(4, 3, 100, 100)
    result = made(whole=normal(4, 3), cut=values, vector=normal(20000))
    assert result.channels("whole") is None and result.channels("vector") is None
    mean, rms = result.channels("cut")
    np.testing.assert_allclose(mean, values.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(rms, np.sqrt((values**2).mean((0, 2, 3))), rtol=1e-12)


def test_a_file_holds_the_whole_record(tmp_path):
    path, result = str(tmp_path / "a.safetensors"), proofs.record("mindspore", proofs.RIGHT["mindspore"], "fp64")
    result.save(path)
    loaded = record.load(path)
    assert loaded._replace(excerpts={}) == result._replace(excerpts={})
    assert loaded.excerpts.keys() == result.excerpts.keys()
    for key, value in result.excerpts.items():
        assert loaded.excerpts[key].dtype == np.float64 and loaded.excerpts[key].shape == value.shape
        np.testing.assert_array_equal(loaded.excerpts[key], value)
    with pytest.raises(UserError, match="exists already and is not overwritten"):
        result.save(path)


def text(**changes):
    rest = {"version": record.VERSION, "framework": "torch", "precision": "fp64", "shapes": {}, "passes": {}}
    rest = {**rest, "steps": [], "files": {}, "settings": {}, **changes}
    return json.dumps({key: value for key, value in rest.items() if value is not None})


@pytest.mark.parametrize(
    "metadata, message",
    [
        (None, "is not a record of zoo compare"),
        ({"record": "{"}, "is not a record of zoo compare"),
        ({"record": text(version=0)}, f"version 0, not {record.VERSION}"),
        ({"record": text(steps=None)}, "'steps'"),
        ({"record": text(passes={"training": [["training/0", ""]]})}, "missing 7 required positional arguments"),
    ],
)
def test_a_file_of_something_else_is_refused(metadata, message, tmp_path):
    path = str(tmp_path / "a.safetensors")
    files.write(path, {"a": np.zeros(3)}, metadata)
    with pytest.raises(UserError) as caught:
        record.load(path)
    assert str(caught.value).startswith(path) and message in str(caught.value)
    assert str(caught.value).endswith("; compare again")
