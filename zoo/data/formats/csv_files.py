"""CSV for spreadsheets, in which names of strangers are never formulas."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

FORMULA = re.compile(r"'*[=+\-@\t\n]")  # beginnings that spreadsheets compute
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def write(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows. Text that a spreadsheet would compute gets an apostrophe before it; numbers stay as they are.

    Args:
        rows: of cells; None is an empty one.
    """
    csv.writer(file, lineterminator="\n").writerows([_plain(cell) for cell in row] for row in rows)


def write_columns(file: TextIO, rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> None:
    """Write a header of keys and the values of each row under them, nothing where a row has none."""
    write(file, [keys, *([row.get(key) for key in keys] for row in rows)])


def _plain(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\r", "\\x0d")  # which would begin a row: csv.writer does not quote it
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text
