"""Records of a proof and the page of a comparison, a row for each module and parameter."""

import json
import re

import numpy as np
import pytest

from tests.helpers import proofs
from zoo.compare import report
from zoo.compare.findings import Verdict, judge
from zoo.compare.report import Row, plot, relative_difference
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


BEYOND = report.COLORS["beyond it"][1]
MODULES = ["(the model)", "stage", "stage.conv", "stage.bn", "fc"]


def rows(names=("torch", "paddle", "mindspore")):
    return {name: [Row(step, 0.1, 2.0 / step, 1.0, 0.0, 0.1, step) for step in (1, 2, 3)] for name in names}


def write_page(folder, records, problems=(), image=None):
    """Write the page of proofs; return its text, and its rows by name: cells with their colors and hints."""
    report.write_page(str(folder / "report.html"), "recipe.yaml", judge(*records), rows(), problems, image)
    text = (folder / "report.html").read_text(encoding="utf-8")
    found = re.findall(r'<tr( class="first")?><td>([^<]*)</td>(.*?)</tr>', text, re.DOTALL)
    cells = {name: re.findall(r"<td([^>]*)>([^<]*)", rest.partition("</td>")[2]) for _, name, rest in found}
    return text, cells, [name for is_first, name, _ in found if is_first]


def test_a_page_of_equal_frameworks(tmp_path):
    text, cells, marked = write_page(tmp_path, proofs.make(proofs.RIGHT), image=plot(rows()))
    assert "They agree" in text and "79 tensors are equal within rounding" in text and marked == []
    assert "recipe.yaml: torch, paddle, mindspore" in text and 'src="data:image/png;base64,iVBORw0KGgo' in text
    assert [name for name in cells if name in MODULES] == MODULES
    names = list(cells)
    below = names[names.index("stage.bn") + 1 :][:4]
    assert set(below) == {f"stage.bn.{part}" for part in ("weight", "bias", "running_mean", "running_var")}
    with pytest.raises(UserError, match="exists already and is not overwritten"):
        report.write_page(str(tmp_path / "report.html"), "", Verdict([], []), rows(), [])


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"input_scale": 255.0}, "(the model)"),
        ({"keeps_pixels": True}, "fc"),
        ({"flow": 0.5}, "stage.bn.weight"),
        ({"rate": 0.01}, "stage.bn.running_mean"),
        ({"smoothing": 0.0}, "loss"),
        ({"is_stale": True}, "fc"),
    ],
)
def test_the_row_of_the_first_difference_is_marked(tmp_path, changes, name):
    """The page needs no other file."""
    text, cells, marked = write_page(tmp_path, proofs.planted(2, **changes), problems=["first\n    line", "second"])
    assert marked == [name] and any(BEYOND in attributes for attributes, _ in cells[name])
    assert "They do not agree" in text and "first\n    line\nsecond" in text
    assert not any(part in text for part in ("http:", "https:", "url(", "@import", "<script", "<link"))


def test_relative_differences():
    assert relative_difference([2.0, 2.0, 2.0]) == 0 == relative_difference([0.0, 0.0]) == relative_difference([1.0])
    assert relative_difference([1.0, 2.0]) == relative_difference([2.0, 1.0]) == 0.5
    assert relative_difference([-1.0, 1.0]) == 2.0 and relative_difference([-4.0, -3.0]) == 0.25
    for value in (float("nan"), float("inf")):
        assert relative_difference([1.0, value]) == relative_difference([value, value]) == float("inf")
