"""The tables that programs print and write: aligned text, Markdown, CSV."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.data.formats import csv_files

EMPTY = "-"  # a cell without a value
_NUMBER = re.compile(r"[-+]?[0-9]")


def table(rows: Iterable[Sequence[object]], columns: Sequence[str], *, markdown: bool = False) -> list[str]:
    """Return the lines of a table; columns whose cells begin like numbers are aligned to the right.

    Args:
        rows: of cells, whose `str` is printed; None for a value that is not known.
        columns: their titles.
        markdown: with vertical bars, else for a terminal.
    """
    lines = [[EMPTY if cell is None else " ".join(str(cell).split("\n")) for cell in row] for row in rows]
    right = [_is_numeric(line[at] for line in lines) for at in range(len(columns))]
    if markdown:
        lines = [[cell.replace("\\", "\\\\").replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(3 * markdown, *map(len, column)) for column in zip(columns, *lines)]
    lines = [
        [cell.rjust(width) if number else cell.ljust(width) for cell, width, number in zip(line, widths, right)]
        for line in (columns, *lines)
    ]
    if not markdown:
        return ["  ".join(line).rstrip() for line in lines]
    rule = ["-" * (width - 1) + (":" if number else "-") for width, number in zip(widths, right)]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]


def csv_text(rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """Return a table in CSV: a header of keys, numbers in full precision, nothing where a value is not known."""
    file = io.StringIO()
    csv_files.write_columns(file, rows, keys)
    return file.getvalue()


def _is_numeric(cells: Iterable[str]) -> bool:
    values = [cell for cell in cells if cell not in ("", EMPTY)]
    return bool(values) and all(map(_NUMBER.match, values))
