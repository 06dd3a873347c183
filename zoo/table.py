"""The tables that programs print and write: aligned text, Markdown, CSV."""

import io
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.data.formats import csv_files

EMPTY = "-"  # a cell without a value
MIN_TEXT = 20  # columns of a terminal that a wrapped text needs at least
_NUMBER = re.compile(r"[-+]?[0-9]")
_HEAD = re.compile(r"\s*\S+(?: \S+)*  +(?=\S)|\s*")  # what stands left of the text of a line in columns
# What LaTeX takes for a command, by what shows it.
LATEX = str.maketrans(
    {
        **{mark: f"\\{mark}" for mark in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


def terminal_width() -> int | None:
    """Return the columns of the terminal that is printed to, or COLUMNS; None where lines may have any length."""
    return shutil.get_terminal_size().columns if os.environ.get("COLUMNS") or sys.stdout.isatty() else None


def wrapped(text: str, width: int | None) -> str:
    """Return a text whose longer lines are broken between words, with their further parts below their text."""
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line, width))


def table(
    rows: Iterable[Sequence[object]], columns: Sequence[str], *, markdown: bool = False, width: int | None = None
) -> list[str]:
    """Return the lines of a table; columns whose cells begin like numbers are aligned to the right.

    Args:
        rows: of cells, whose `str` is printed; None for a value that is not known.
        markdown: with vertical bars, else for a terminal.
        width: of the terminal. A wider table has the text of its last column wrapped or, where others are too wide, a
            block of lines per row.
    """
    rows = [*rows]
    lines = _aligned(rows, columns, markdown)
    if width is None or max(map(len, lines)) <= width:
        return lines
    indent = max(map(len, _aligned([row[:-1] for row in rows], columns[:-1], False))) + 2  # of the last column
    if not markdown and indent + MIN_TEXT <= width:
        return [part for line in lines for part in _broken(line, width, indent)]
    return _blocks(rows, columns, width)


def _blocks(rows: Sequence[Sequence[object]], columns: Sequence[str], width: int) -> list[str]:
    """Return the rows below each other, a known cell per line below the first one."""
    titles, lines = max(map(len, columns[1:]), default=0), list[str]()
    for head, *cells in rows:
        lines += _wrapped(str(head), width)
        for title, cell in zip(columns[1:], cells):
            if cell not in (None, ""):
                lines += _wrapped(f"  {title:<{titles}}  {cell}", width)
    return lines


def _wrapped(line: str, width: int | None) -> list[str]:
    if width is None or len(line) <= width:
        return [line]
    head = _HEAD.match(line)
    left, indent = len(line) - len(line.lstrip()), head.end() if head else 0
    if left < indent <= width - MIN_TEXT:
        return _broken(line, width, indent)
    return _broken(" " * left + re.sub(" {3,}", "  ", line.strip()), width, left + 2 * (left < 4))


def _broken(line: str, width: int, indent: int) -> list[str]:
    """Return a line broken between words, its further parts indented; a longer word has a line of its own."""
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=" " * indent, replace_whitespace=False, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.wrap(line) or [line]


def _aligned(rows: Sequence[Sequence[object]], columns: Sequence[str], markdown: bool) -> list[str]:
    lines = [[EMPTY if cell is None else " ".join(str(cell).split("\n")) for cell in row] for row in rows]
    right = [_is_numeric(line[at] for line in lines) for at in range(len(columns))]
    if markdown:
        lines = [[cell.replace("\\", "\\\\").replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(3 * markdown, *map(_columns, column)) for column in zip(columns, *lines)]
    lines = [
        [_padded(cell, width, number) for cell, width, number in zip(line, widths, right)] for line in (columns, *lines)
    ]
    if not markdown:
        return ["  ".join(line).rstrip() for line in lines]
    rule = ["-" * (width - 1) + (":" if number else "-") for width, number in zip(widths, right)]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]


def latex(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> str:
    """Return a table as a `tabular` of LaTeX, numbers to the right; None is a dash."""
    lines = [["--" if cell is None else str(cell).translate(LATEX) for cell in row] for row in rows]
    right = [_is_numeric(cell for cell in column if cell != "--") for column in zip(*lines)]
    heads = [name.translate(LATEX) for name in columns]
    body = "".join(f"{' & '.join(line)} \\\\\n" for line in (heads, *lines))
    head, _, rest = body.partition("\n")
    form = "".join("r" if number else "l" for number in right or [False] * len(columns))
    return f"\\begin{{tabular}}{{{form}}}\n\\hline\n{head}\n\\hline\n{rest}\\hline\n\\end{{tabular}}\n"


def csv_text(rows: Iterable[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """Return a table in CSV: a header of keys, numbers in full precision, nothing where a value is not known."""
    file = io.StringIO()
    csv_files.write_columns(file, rows, keys)
    return file.getvalue()


def _columns(text: str) -> int:
    """Return the columns of a terminal that a text takes, two for each Chinese, Japanese or Korean character."""
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)


def _padded(cell: str, width: int, right: bool) -> str:
    blanks = " " * (width - _columns(cell))
    return blanks + cell if right else cell + blanks


def _is_numeric(cells: Iterable[str]) -> bool:
    values = [cell for cell in cells if cell not in ("", EMPTY)]
    return bool(values) and all(map(_NUMBER.match, values))
