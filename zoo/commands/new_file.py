"""Output files and folders, checked before the work that fills them, and the option --json of reports."""

import argparse
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from zoo.data import durable
from zoo.data.errors import UserError, printable
from zoo.logs import journal
from zoo.table import terminal_width, wrapped

STANDARD_OUTPUT = "-"


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        nargs="?",
        const=STANDARD_OUTPUT,
        metavar="FILE",
        help="print JSON instead of text; with FILE, print the text and write the JSON to this new file",
    )


def print_report(lines: Sequence[str], report: Any, path: str | None) -> None:
    """Print a report as text, as JSON, or as text beside a file of JSON."""
    text = journal.json_text(report, indent=1) + "\n"
    if path == STANDARD_OUTPUT:
        print(text, end="")
        return
    if lines:
        print(wrapped(printable("\n".join(lines)), terminal_width()), flush=True)
    if path is not None:
        write_new(text, path, "--json")


def write_new(text: str, path: str, option: str) -> None:
    try:
        with open(path, "x", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror}") from None


def require_new(path: str | None, option: str) -> None:
    """Check that a file can be made.

    Args:
        path: of the file; None if it is not asked for, or - for the standard output.
    """
    if path is None or path == STANDARD_OUTPUT:
        return
    folder = os.path.dirname(path) or "."
    if os.path.lexists(path):
        raise UserError(f"{option} {path}: this file exists; name a new one")
    if not os.path.isdir(folder):
        raise UserError(f"{option} {path}: there is no such folder; make it first")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: the folder cannot be written to; name another one")


@contextmanager
def new_folder(path: str, option: str) -> Iterator[str]:
    """Make a folder completely or not at all.

    Yields:
        An empty folder beside it, which gets its name when the block ends, and is removed when the block fails.
    """
    path = os.path.abspath(path)
    require_new(path, option)
    partial = f"{path}.partial"
    try:
        os.mkdir(partial)
    except OSError as error:
        raise UserError(f"{partial}: {error.strerror}; if it is left from an interrupt, remove it") from None
    try:
        yield partial
        os.sync()
        os.rename(partial, path)
        durable.sync_folder(os.path.dirname(path))
    except OSError as error:
        raise UserError(f"{option} {path}: {error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
