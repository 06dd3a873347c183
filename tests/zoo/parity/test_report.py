"""zoo/parity/report.py: the page of a comparison, a row for each module and parameter."""

import re

import pytest

from tests.helpers import proofs
from zoo.compare.findings import judge
from zoo.data.errors import UserError
from zoo.parity import report

BEYOND = report.COLORS["beyond it"][1]
NAMES = ("torch", "paddle", "mindspore")
MODULES = ["(the model)", "stage", "stage.conv", "stage.bn", "fc"]


def write_page(folder, records, problems=(), image=None):
    """Write the page of proofs; return its text, and its rows by name: cells with their colors and hints."""
    sections = [report.Section(report.NATURAL, judge(*records).differences)]
    report.write_page(str(folder / "report.html"), "recipe.yaml", NAMES, problems, sections, image)
    text = (folder / "report.html").read_text(encoding="utf-8")
    found = re.findall(r'<tr( class="first")?><td>([^<]*)</td>(.*?)</tr>', text, re.DOTALL)
    cells = {name: re.findall(r"<td([^>]*)>([^<]*)", rest.partition("</td>")[2]) for _, name, rest in found}
    return text, cells, [name for is_first, name, _ in found if is_first]


def test_a_page_of_equal_frameworks(tmp_path):
    text, cells, marked = write_page(tmp_path, proofs.make(proofs.RIGHT), image=b"\x89PNG\r\n\x1a\n")
    assert "They agree" in text and "80 tensors are equal within rounding" in text and marked == []
    assert "recipe.yaml: torch, paddle, mindspore" in text and 'src="data:image/png;base64,iVBORw0KGgo' in text
    assert [name for name in cells if name in MODULES] == MODULES
    names = list(cells)
    below = names[names.index("stage.bn") + 1 :][:4]
    assert set(below) == {f"stage.bn.{part}" for part in ("weight", "bias", "running_mean", "running_var")}
    with pytest.raises(UserError, match="exists already and is not overwritten"):
        report.write_page(str(tmp_path / "report.html"), "", [], [], [report.Section("", [])])


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
