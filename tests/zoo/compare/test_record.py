"""zoo/compare/record.py: excerpts, channel statistics, and files."""

import json

import numpy as np
import pytest

from tests.helpers import proofs
from zoo.compare import record
from zoo.compare.record import MAX_ELEMENTS
from zoo.data.errors import UserError
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


def test_equal_tensors_are_stored_once():
    large = normal(4, 3, 100, 100)
    result = made(a=large, b=normal(3, 2), c=large.copy(), d=large.astype(np.float32).astype(np.float64))
    assert result.excerpts.keys() == {"a", "a#channels", "b", "d", "d#channels"}
    assert result.aliases == {"c": "a"} and result.shapes["c"] == large.shape
    np.testing.assert_array_equal(result.get("c"), result.get("a"))
    np.testing.assert_array_equal(result.channels("c"), result.channels("a"))


def test_tensors_that_are_equal_but_for_their_shape_or_rest_are_not_the_same():
    flat, large = normal(12), normal(4, 3, 100, 100)
    other = large.copy()
    other[3, 2, 99, 99] += 1  # outside of the excerpt
    result = made(a=flat, b=flat.reshape(3, 4), c=large, d=other)
    assert result.aliases == {}
    assert result.get("b").shape == (3, 4)


def test_tensors_with_one_checksum_are_not_the_same(monkeypatch):
    monkeypatch.setattr(record.zlib, "crc32", lambda values: 0)
    result = made(a=normal(3, seed=1), b=normal(3, seed=2), c=normal(3, seed=1))
    assert result.aliases == {"c": "a"}
    np.testing.assert_array_equal(result.get("b"), normal(3, seed=2))


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
    assert loaded._replace(excerpts={}, digests={}) == result._replace(excerpts={}, digests={})
    assert loaded.excerpts.keys() == result.excerpts.keys()
    for key, value in result.excerpts.items():
        assert loaded.excerpts[key].dtype == np.float64 and loaded.excerpts[key].shape == value.shape
        np.testing.assert_array_equal(loaded.excerpts[key], value)
    with pytest.raises(UserError, match="exists already and is not overwritten"):
        result.save(path)


def test_numbers_that_are_not_finite_survive(tmp_path):
    path = str(tmp_path / "a.safetensors")
    result = made(a=np.array([np.nan, np.inf, -np.inf, -0.0]))
    result.steps.append({"loss": float("nan")})
    result.save(path)
    loaded = record.load(path)
    np.testing.assert_array_equal(loaded.get("a"), result.get("a"))
    assert np.isnan(loaded.steps[0]["loss"])


def text(**changes):
    rest = {"version": 1, "framework": "torch", "precision": "fp64", "aliases": {}, "shapes": {}, "passes": {}}
    rest = {**rest, "steps": [], "files": {}, "settings": {}, **changes}
    return json.dumps({key: value for key, value in rest.items() if value is not None})


@pytest.mark.parametrize(
    "metadata, message",
    [
        (None, "is not a record of tools/compare.py"),
        ({"record": "{"}, "is not a record of tools/compare.py"),
        ({"record": text(version=0)}, "version 0, not 1"),
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


def test_a_file_that_is_missing_or_damaged_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    with pytest.raises(UserError, match="no such file"):
        record.load(str(path))
    made(a=normal(100)).save(str(path))
    content = path.read_bytes()
    for damaged in (b"", content[:7], content[: len(content) // 2], content[:-1], b"x" * 100):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="is not a complete safetensors file"):
            record.load(str(path))
