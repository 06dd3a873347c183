"""zoo/compare/page.py: one well-formed file without references, a row for each module and parameter."""

import base64
import re
from html.parser import HTMLParser

import pytest

from tests.helpers import proofs
from zoo.compare import page
from zoo.compare.curves import Row, plot
from zoo.compare.findings import Verdict, judge
from zoo.data.errors import UserError

BEYOND = page.COLORS["beyond it"][1]
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
        self.tags, self.open, self.rows, self.text = [], [], [], ""
        self.feed(source)
        self.close()
        assert self.open == [], "tags are left open"

    def handle_starttag(self, tag, attributes):
        assert len(dict(attributes)) == len(attributes), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append((dict(attributes), []))
        if tag in ("td", "th"):
            self.rows[-1][1].append(["", dict(attributes)])

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

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


def rows(names=("torch", "paddle", "mindspore"), steps=3):
    return {
        name: [Row(step + 1, 0.1, 2.0 / (step + 1), 1.0, 0.0, 0.1, step) for step in range(steps)] for name in names
    }


def write(tmp_path, verdict, curves=None, problems=None, title="recipe.yaml"):
    path = tmp_path / "report.html"
    problems = [str(finding) for finding in verdict.findings] if problems is None else problems
    page.write(str(path), title, verdict, rows() if curves is None else curves, problems)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def equal():
    return judge(*proofs.make(proofs.RIGHT))


@pytest.fixture(scope="module")
def other_flow():
    return judge(*proofs.planted(flow=0.5))


def test_a_page_of_equal_frameworks(equal, tmp_path):
    parsed = Page(write(tmp_path, equal))
    assert "They agree" in parsed.text and "do not agree" not in parsed.text
    assert f"{len(equal.differences)} tensors are equal within rounding" in parsed.text
    assert parsed.marked == []
    assert "recipe.yaml: torch, paddle, mindspore" in parsed.text


def test_a_page_of_findings(other_flow, tmp_path):
    parsed = Page(write(tmp_path, other_flow, problems=["first\n    line", "second"]))
    assert "They do not agree" in parsed.text and "first\n    line\nsecond" in parsed.text


@pytest.mark.parametrize("verdict", ["equal", "other_flow"])
def test_the_page_needs_no_other_file(verdict, tmp_path, request):
    source = write(tmp_path, request.getfixturevalue(verdict))
    assert source.startswith("<!DOCTYPE html>")
    for tag, attributes in Page(source).tags:
        assert tag not in ("script", "link", "iframe", "object", "image", "use", "base", "a")
        assert not {"src", "href", "srcset", "data", "onclick", "onload"} & attributes.keys()
    for text in ("http:", "https:", "//", "url(", "@import", "javascript"):
        assert text not in source, text


def test_every_module_and_parameter_has_one_row(equal, tmp_path):
    names = Page(write(tmp_path, equal)).names
    assert len(set(names)) == len(names)
    assert {*MODULES, *proofs.GROUPS, "stage.bn.running_mean", "stage.bn.running_var"} <= set(names)
    assert not any(name.startswith("momentum/") for name in names)  # it is in the parameter's row
    assert "stage.extra" not in names  # of one framework alone
    assert [name for name in names if name in MODULES] == MODULES


def test_parameters_are_below_their_module(equal, tmp_path):
    names = Page(write(tmp_path, equal)).names
    start = names.index("stage.bn")
    parts = {"weight", "bias", "running_mean", "running_var"}
    assert set(names[start + 1 : start + 5]) == {f"stage.bn.{part}" for part in parts}


def test_the_state_of_the_optimizer_is_in_the_row_of_its_parameter(equal, tmp_path):
    parsed = Page(write(tmp_path, equal))
    for name in proofs.GROUPS:
        assert parsed.cell(name, "optimizer")[1]["title"].startswith("update 1: largest difference ")


def test_rows_show_class_and_call(equal, tmp_path):
    parsed = Page(write(tmp_path, equal))
    assert re.fullmatch(r"Bn \w+/blocks.py:11", parsed.cell("stage.bn", "module and call")[0])
    assert parsed.cell("(the model)", "module and call")[0].startswith("Model")
    assert parsed.cell("fc.weight", "module and call")[0].strip() == ""


def test_cells_show_the_worst_tensor(other_flow, tmp_path):
    parsed = Page(write(tmp_path, other_flow))
    text, attributes = parsed.cell("stage.bn.weight", "gradient")
    assert text == "5.0e-01" and BEYOND in attributes["style"]
    assert attributes["title"].startswith("update 1: largest difference ") and "paddle apart" in attributes["title"]
    text, attributes = parsed.cell("fc.weight", "gradient")
    assert float(text) < 1e-12 and BEYOND not in attributes["style"]
    assert parsed.cell("stage.conv", "gradient") == ["", {}]
    later = parsed.cell("fc", "later")[1]["title"]
    assert later.startswith(("training after the updates", "evaluation after the updates"))


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"input_scale": 255.0}, "(the model)"),
        ({"eps": 1e-3}, "stage.bn"),
        ({"has_relu": False}, "stage"),
        ({"keeps_pixels": True}, "fc"),
        ({"flow": 0.5}, "stage.bn.weight"),
        ({"rate": 0.01}, "stage.bn.running_mean"),
        ({"smoothing": 0.0}, "loss"),
        ({"is_stale": True}, "fc"),
    ],
)
@pytest.mark.parametrize("count", [2, 3])
def test_the_row_of_the_first_difference_is_marked(changes, name, count, tmp_path):
    assert Page(write(tmp_path, judge(*proofs.planted(count, **changes)))).marked == [name]


def test_the_row_is_marked_though_a_later_difference_is_larger(tmp_path):
    """A cell shows the worst of several tensors, which need not be the first."""
    fp64, fp32 = proofs.make(proofs.RIGHT)
    name = "stage.bn.weight"
    for part, factor in (("gradient", 1.001), ("change", 100.0)):
        key = f"update 2/{part}/{name}"
        fp64, fp32 = (proofs.edit(records, "paddle", key, lambda v, f=factor: v * f) for records in (fp64, fp32))
    verdict = judge(fp64, fp32)
    assert "update 2: gradient" in verdict.findings[0].what
    parsed = Page(write(tmp_path, verdict))
    assert parsed.cell(name, "later")[0] == "9.9e-01" and parsed.marked == [name]


def test_names_are_escaped(tmp_path):
    bad = "<script>\"&'</script>"
    fp64, fp32 = proofs.make({bad: proofs.RIGHT["torch"], "paddle": proofs.Variant(has_relu=False)})
    for records in (fp64, fp32):
        for title, record in records.items():
            for stage, calls in record.passes.items():
                record.passes[stage] = [
                    call._replace(name=f"<b>{call.name}", kind="<i>", call_sites=("<u>.py:1",)) for call in calls
                ]
            assert title == record.framework
    source = write(tmp_path, judge(fp64, fp32), rows([bad, "paddle"]), title="<h1>.yaml")
    parsed = Page(source)
    assert not {"script", "b", "u", "i"} & {tag for tag, attributes in parsed.tags if tag != "i" or attributes}
    assert "<b>stage.bn" in parsed.names and "<h1>.yaml: <script>" in parsed.text
    assert parsed.cell("<b>fc", "module and call")[0] == "<i> <u>.py:1"


def test_curves(equal, tmp_path):
    curves = rows(steps=4)
    curves["paddle"][2] = curves["paddle"][2]._replace(loss=float("nan"))
    page.write(str(tmp_path / "a.html"), "a", equal, curves, [], plot(curves))
    [image] = [attributes for tag, attributes in Page((tmp_path / "a.html").read_text()).tags if tag == "img"]
    assert base64.b64decode(image["src"].partition(",")[2]).startswith(b"\x89PNG")


def test_a_page_of_one_framework(tmp_path):
    fp64, fp32 = proofs.make({"torch": proofs.RIGHT["torch"]})
    parsed = Page(write(tmp_path, judge(fp64, fp32), rows(["torch"])))
    assert parsed.names == [] and "recipe.yaml: torch" in parsed.text


def test_a_page_is_not_overwritten(equal, tmp_path):
    write(tmp_path, equal)
    before = (tmp_path / "report.html").read_bytes()
    with pytest.raises(UserError, match="exists already and is not overwritten"):
        write(tmp_path, Verdict([], []))
    assert (tmp_path / "report.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
