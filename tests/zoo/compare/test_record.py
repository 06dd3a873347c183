"""Records of a proof and the page of a comparison, a row for each module and parameter."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.helpers import proofs
from zoo.compare import record, report
from zoo.compare.findings import Verdict, judge
from zoo.compare.record import MAX_ELEMENTS
from zoo.compare.report import Row, plot, relative_difference
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


BEYOND = report.COLORS["beyond it"][1]
VOID = {"meta", "br", "hr", "img", "link", "input"}
MODULES = ["(the model)", "stage", "stage.conv", "stage.bn", "fc"]


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        tags: all start tags, with their attributes.
        rows: of the table: attributes of the row, and text and attributes of its cells.
        text: of the whole page.
    """

    def __init__(self, source):
        super().__init__()
        self.source, self.tags, self.open, self.rows, self.text = source, [], [], [], ""
        self.feed(source)
        self.close()
        assert self.open == [], "tags are left open"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append((dict(attributes), []))
        if tag in ("td", "th"):
            self.rows[-1][1].append(["", dict(attributes)])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, data):
        self.text += data
        if self.open and {"td", "th"} & set(self.open):
            self.rows[-1][1][-1][0] += data

    @property
    def names(self):
        return [cells[0][0] for _, cells in self.rows[1:]]

    @property
    def marked(self):
        return [cells[0][0] for attributes, cells in self.rows if attributes.get("class") == "first"]

    def cell(self, name, column):
        head = [cell[0] for cell in self.rows[0][1]]
        return next(cells for _, cells in self.rows if cells[0][0] == name)[head.index(column)]


def rows(names=("torch", "paddle", "mindspore")):
    return {name: [Row(step, 0.1, 2.0 / step, 1.0, 0.0, 0.1, step) for step in (1, 2, 3)] for name in names}


@pytest.fixture
def page(tmp_path):
    """Return a function that writes and parses the page of proofs."""

    def make(records, curves=None, problems=None, image=None, title="recipe.yaml"):
        verdict = judge(*records)
        problems = [str(finding) for finding in verdict.findings] if problems is None else problems
        report.write_page(str(tmp_path / "report.html"), title, verdict, curves or rows(), problems, image)
        return Page((tmp_path / "report.html").read_text(encoding="utf-8"))

    return make


def test_a_page_of_equal_frameworks(page):
    curves = rows()
    curves["paddle"][2] = curves["paddle"][2]._replace(loss=float("nan"))
    parsed = page(proofs.make(proofs.RIGHT), curves, image=plot(curves))
    assert "They agree" in parsed.text and "do not agree" not in parsed.text
    count = len(judge(*proofs.make(proofs.RIGHT)).differences)
    assert f"{count} tensors are equal within rounding" in parsed.text and parsed.marked == []
    assert "recipe.yaml: torch, paddle, mindspore" in parsed.text
    assert len(set(parsed.names)) == len(parsed.names)
    assert {*MODULES, *proofs.GROUPS, "stage.bn.running_mean", "stage.bn.running_var"} <= set(parsed.names)
    assert "stage.extra" not in parsed.names  # of one framework alone
    assert [name for name in parsed.names if name in MODULES] == MODULES
    below = parsed.names[parsed.names.index("stage.bn") + 1 :][:4]
    assert set(below) == {f"stage.bn.{part}" for part in ("weight", "bias", "running_mean", "running_var")}
    for name in proofs.GROUPS:  # the optimizer's state is in the row of its parameter
        assert parsed.cell(name, "optimizer")[1]["title"].startswith("update 1: largest difference ")
    assert re.fullmatch(r"Bn \w+/blocks.py:11", parsed.cell("stage.bn", "module and call")[0])
    assert parsed.cell("fc.weight", "module and call")[0].strip() == ""
    [image] = [attributes for tag, attributes in parsed.tags if tag == "img"]
    assert base64.b64decode(image["src"].partition(",")[2]).startswith(b"\x89PNG")


def test_a_page_of_findings(page):
    """It needs no other file; cells show the worst tensor."""
    parsed = page(proofs.planted(flow=0.5), problems=["first\n    line", "second"])
    assert "They do not agree" in parsed.text and "first\n    line\nsecond" in parsed.text
    for tag, attributes in parsed.tags:
        assert tag not in ("script", "link", "iframe", "object", "image", "use", "base", "a")
        assert not {"src", "href", "srcset", "data", "onclick", "onload"} & attributes.keys()
    for text in ("http:", "https:", "//", "url(", "@import", "javascript"):
        assert text not in parsed.source, text
    text, attributes = parsed.cell("stage.bn.weight", "gradient")
    assert text == "5.0e-01" and BEYOND in attributes["style"]
    assert attributes["title"].startswith("update 1: largest difference ") and "paddle apart" in attributes["title"]
    text, attributes = parsed.cell("fc.weight", "gradient")
    assert float(text) < 1e-12 and BEYOND not in attributes["style"]
    assert parsed.cell("stage.conv", "gradient") == ["", {}]
    assert "after the updates" in parsed.cell("fc", "later")[1]["title"]


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
def test_the_row_of_the_first_difference_is_marked(page, changes, name):
    assert page(proofs.planted(2, **changes)).marked == [name]


def test_a_page_of_one_framework_and_no_second_one(page, tmp_path):
    parsed = page(proofs.make({"torch": proofs.RIGHT["torch"]}), rows(["torch"]))
    assert parsed.names == [] and "recipe.yaml: torch" in parsed.text
    with pytest.raises(UserError, match="exists already and is not overwritten"):
        report.write_page(str(tmp_path / "report.html"), "", Verdict([], []), rows(), [])
    assert (tmp_path / "report.html").read_text() == parsed.source


def test_relative_differences():
    assert relative_difference([2.0, 2.0, 2.0]) == 0 == relative_difference([0.0, 0.0]) == relative_difference([1.0])
    assert relative_difference([1.0, 2.0]) == relative_difference([2.0, 1.0]) == 0.5
    assert relative_difference([-1.0, 1.0]) == 2.0 and relative_difference([-4.0, -3.0]) == 0.25
    for value in (float("nan"), float("inf")):
        assert relative_difference([1.0, value]) == relative_difference([value, value]) == float("inf")
