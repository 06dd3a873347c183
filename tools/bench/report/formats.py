"""Tables as Markdown, CSV and HTML, and a report as JSON."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from zoo.bench.report.tables import Row, Table

EMPTY = "-"  # a cell without a value, as in the tables of AI-Rank
SHORT = 28  # characters of a text that is not broken in a table


def cells(table: Table, row: Row) -> list[str]:
    """Return the printed values of a row."""
    return [EMPTY if row[c.key] is None else c.format(row[c.key]) for c in table.columns]


def is_numeric(table: Table) -> list[bool]:
    """Return for each column whether it has numbers alone."""
    return [
        all(isinstance(row[column.key], int | float) for row in table.rows if row[column.key] is not None)
        for column in table.columns
    ]


def markdown(table: Table) -> list[str]:
    """Return the lines of a table in Markdown, numbers to the right."""
    rules = ["--:" if number else ":--" for number in is_numeric(table)]
    lines = [[column.title for column in table.columns], rules, *(cells(table, row) for row in table.rows)]
    return [f"| {' | '.join(_plain(cell) for cell in line)} |" for line in lines]


def _plain(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def html(table: Table) -> str:
    """Return a table in HTML."""
    numbers = is_numeric(table)
    head = "".join(f"<th>{escape(column.title)}</th>" for column in table.columns)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{_kind(cell, number)}">{escape(cell)}</td>' for number, cell in zip(numbers, cells(table, row))
        )
        + "</tr>"
        for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _kind(cell: str, is_number: bool) -> str:
    return "number" if is_number else "long" if len(cell) > SHORT else "text"


def csv_text(table: Table) -> str:
    """Return a table in CSV: a header of keys, numbers in full precision, nothing where a value is not known."""
    keys = list(dict.fromkeys(["model", *(column.key for column in table.columns)]))
    file = io.StringIO()
    writer = csv.DictWriter(file, keys, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.rows)
    return file.getvalue()


def json_text(tables: Iterable[Table], warnings: Sequence[str], dlperf: dict[str, Any]) -> str:
    """Return a report in JSON."""
    report = {
        "warnings": list(warnings),
        "tables": {
            table.name: [{key: row[key] for key in ("model", *(c.key for c in table.columns))} for row in table.rows]
            for table in tables
        },
        "dlperf": dlperf,
    }
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
