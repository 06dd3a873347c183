"""Pages of all modules with their differences: one HTML file without scripts and without references to other files."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from zoo import templates
from zoo.parity.differences import Difference, Event
from zoo.parity.verdict import Result
from zoo.weights import files

COLORS = {  # by the share of the limit
    "below 1 %": (0.01, "#b7e1cd"),
    "below 10 %": (0.1, "#d9efd0"),
    "below 50 %": (0.5, "#fdf0b5"),
    "below the limit": (1.0, "#fbd3a6"),
    "beyond it": (float("inf"), "#f4a59a"),
}
PASSES = ("training input", "training output", "evaluation input", "evaluation output")
GRADIENTS = ("output gradient", "input gradient")
COLUMNS = (*PASSES, *GRADIENTS, "gradient", "change", "statistic", "optimizer", "later")
PAGE = Path(__file__).with_suffix(".html")
NATURAL = "Modules, in the order of the forward pass"
ALONE = "Each module with the inputs and gradients of the reference"


class Section(NamedTuple):
    """A table of a page."""

    heading: str
    differences: Sequence[Difference]


class Row(NamedTuple):
    """A module or a parameter of a table.

    Attributes:
        site: file and line of its call.
        is_first: whether it differs first.
    """

    name: str
    kind: str
    site: str
    is_first: bool
    cells: list[dict[str, str] | None]


def write_result(path: str, title: str, result: Result) -> None:
    """Write the page of a comparison of sides."""
    sections = []
    for judged in result.sides:
        end = f": {judged.titles[1]}" if len(result.sides) > 1 else ""
        sections += [Section(NATURAL + end, judged.natural), Section(ALONE + end, judged.alone)]
    names = [result.sides[0].titles[0], *(judged.titles[1] for judged in result.sides)]
    write_page(path, title, names, [] if result.agrees else [str(result)], sections)


def write_page(
    path: str,
    title: str,
    names: Sequence[str],
    problems: Sequence[str],
    sections: Sequence[Section],
    image: bytes | None = None,
) -> None:
    """Write the page.

    Args:
        problems: what does not agree.
        image: plot of the curves, PNG.
    """
    tables = []
    for section in sections:
        columns = _columns(section.differences)
        tables.append((section.heading, columns, _table(section.differences, columns)))
    text = templates.render(
        PAGE,
        title=title,
        names=names,
        problems=problems,
        count=len(sections[0].differences),
        image=base64.b64encode(image).decode() if image else "",
        colors=COLORS,
        tables=tables,
    )
    with files.atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def _columns(differences: Sequence[Difference]) -> list[str]:
    found = {_column(difference.event) for difference in differences}
    return [column for column in COLUMNS if column in found]


def _table(differences: Sequence[Difference], columns: Sequence[str]) -> list[Row]:
    """Return a row for each module and parameter."""
    cells: dict[str, dict[str, Difference]] = {}
    kinds: dict[str, tuple[str, str]] = {}
    first = next((_row_name(difference.event) for difference in differences if difference.is_beyond), None)
    for difference in differences:
        event, name = difference.event, _row_name(difference.event)
        row = cells.setdefault(name, {})
        column = _column(event)
        if column not in row or _share(difference) > _share(row[column]):
            row[column] = difference
        for call in event.calls.values():
            kinds.setdefault(name, (call.kind, next(iter(call.call_sites), "")))
    return [
        Row(name, *kinds.get(name, ("", "")), name == first, [_cell(cells[name].get(column)) for column in columns])
        for name in _ordered(cells)
    ]


def _row_name(event: Event) -> str:
    return event.name.removeprefix("momentum/") or "(the model)"


def _ordered(cells: Mapping[str, Mapping[str, Difference]]) -> list[str]:
    """Return the names of the rows, parameters below their modules."""
    position = {name: number for number, name in enumerate(cells)}
    modules = {name for name, row in cells.items() if "training output" in row}

    def key(name: str) -> tuple[int, int]:
        module = name if name in modules else name.rpartition(".")[0]
        return position.get(module, position[name]), position[name]

    return sorted(cells, key=key)


def _cell(difference: Difference | None) -> dict[str, str] | None:
    if difference is None:
        return None
    share = _share(difference)
    hint = (
        f"{difference.event.stage}: largest difference {difference.largest:.2e}, limit {difference.limit:.2e}, "
        f"largest value {difference.magnitude:.2e}"
        + (f"; {', '.join(difference.apart)} apart" if difference.apart else "")
    )
    color = next(color for limit, color in COLORS.values() if share <= limit)
    return {"text": f"{difference.relative:.1e}", "color": color, "hint": hint}


def _column(event: Event) -> str:
    if event.stage in ("training", "evaluation"):
        return event.part if "gradient" in event.part else f"{event.stage} {event.part}"
    if event.stage != "update 1":
        return "later"
    return {"loss": "training output", "grad_norm": "gradient"}.get(event.part, event.part)


def _share(difference: Difference) -> float:
    return difference.largest / max(difference.limit, 1e-300) if difference.largest else 0.0
