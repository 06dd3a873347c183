"""The page docs/differences.md, written from the facts of zoo.parity: python -m tests.differences_page"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from tests.helpers.paths import ROOT
from zoo.parity.facts import Cell, Fact, facts

PAGE = ROOT / "docs" / "differences.md"
HEAD = """\
# What differs between frameworks by default, and how to make it equal

A row is a fact, most of which `zoo parity` recognizes by their arithmetic and names as causes; what stands below it is
its name, for `--accept` ([Is my port right?](porting.md)). **Bold** is what a layer, loss or optimizer does by default;
&ne; marks the rows in which defaults differ. The code has another value than the default, or any number `V`: the cell
of your framework says how to make it equal to another. `-` means that there is no such option, or that it was not
looked up. `n` is the number of channels or features, `m` that of the output, `k` a kernel, `h` a hidden state, `x` the
first input and `y` the second.

The code was run on CPUs with {versions}
(`tests/zoo/parity/test_fact_code.py`): in PyTorch, Paddle, MindSpore, JAX and optax, nearly all of it gives the numbers
of its formula; that of flax and equinox was run alone. Paddle's and MindSpore's RMSNorm have no kernel on CPUs.
`python -m tests.differences_page` writes this page from `zoo/parity/facts.toml`.
"""
VERSIONS = {
    "PyTorch": "2.13.0",
    "PaddlePaddle": "3.3.1",
    "MindSpore": "2.8.0",
    "JAX": "0.10.2",
    "flax": "0.12.8",
    "equinox": "0.13.8",
    "optax": "0.2.8",
}
COLUMNS = {
    "PyTorch": ("torch",),
    "Paddle": ("paddle",),
    "MindSpore": ("mindspore",),
    "JAX": ("jax", "flax", "equinox", "optax"),
}
TITLES = {"flax": "flax.nnx: ", "equinox": "equinox: ", "optax": "optax: "}
VALUE = {"{value}": "V", "{1-value}": "1 - V"}


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD.format(versions=", ".join(f"{name} {version}" for name, version in VERSIONS.items()))]
    rows = sorted(facts(), key=lambda fact: subjects().index(fact.subject))
    for subject, found in groupby(rows, key=lambda fact: fact.subject):
        lines = [line(("what", *COLUMNS)), line(["---"] * (1 + len(COLUMNS))), *(line(row(fact)) for fact in found)]
        parts.append("\n".join([f"## {subject.capitalize()}", "", *lines]) + "\n")
    return "\n".join(parts)


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def subjects() -> list[str]:
    return list(dict.fromkeys(fact.subject for fact in facts()))


def row(fact: Fact) -> list[str]:
    differs = len({str(cell.default) for cell in fact.cells.values() if cell.default is not None}) > 1
    what = ("&ne; " if differs else "") + fact.what + "".join(f", {name} {value}" for name, value in fact.when.items())
    cells = [column(fact, names) for names in COLUMNS.values()]
    return ["<br>".join(filter(None, (what, f"`{fact.name}`", f"*{fact.note}*" * bool(fact.note)))), *cells]


def column(fact: Fact, names: Sequence[str]) -> str:
    parts = [TITLES.get(name, "") + cell_text(fact, fact.cells[name]) for name in names if name in fact.cells]
    return "<br>".join(parts) or "-"


def cell_text(fact: Fact, cell: Cell) -> str:
    """Return the default of a framework and the code that has each value."""
    parts = [f"**{fact.words(cell.default)}**"] if cell.default is not None else []
    choices = [*cell.literals] or [value for value in fact.values if value not in cell.others] if fact.values else []
    if cell.code and not choices:
        code = re.sub(r"\{(1-)?value\}", lambda found: VALUE[found[0]], cell.code)
        parts.append(f"`{code}`")
    codes = {value: cell.expression(value) for value in choices} | dict(cell.others) if cell.code else cell.others
    for value, code in codes.items():
        if value != str(cell.default):
            parts.append(f"{words(fact, value)}: `{code}`")
        elif not cell.code:
            parts[0] += f" `{code}`"
    if cell.note:
        parts.append(f"*{cell.note}*")
    return "<br>".join(parts)


def words(fact: Fact, value: Any) -> str:
    return fact.values.get(value, value)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
