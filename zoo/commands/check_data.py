"""Check the data of a recipe as a run does before its first step; with --deep, read every sample once too.

A run looks at names and sizes: classes that a split lacks, files that are missing or tiny, validation files that are
training files too. --deep also compares the contents of all files of the same size, counts the pixels of all masks,
and lists the samples that cannot be read, before a long run needs them.
"""

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from zoo import data, program
from zoo.data import order
from zoo.data.audit import report
from zoo.data.errors import BadSample, UserError
from zoo.data.stream import Dataset
from zoo.run import cli

STDERR = 2  # its file descriptor


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code: 0 for sound data, 1 for faults, 2 without data to check."""
    parser = program.parser(
        __doc__,
        "Exit codes: 0 nothing is wrong but for warnings, 1 classes are missing or samples cannot be read, "
        "2 an error to fix on your side.",
    )
    cli.add_recipe_arguments(parser, ())
    parser.add_argument("--deep", action="store_true", help="read all contents, which takes as long as an epoch")
    parser.add_argument("--table", metavar="FILE", help="write the samples of every class to this CSV file")
    arguments = parser.parse_args(argv)
    request = cli.request(arguments.config, arguments.override)
    settings = dataclasses.replace(request.config.data, cache=None)  # the files themselves are checked, no copies
    train, val = data.find(request.resolved["data.name"].value).load(settings)
    code = print_report(report.examine(train, val, arguments.deep), settings, arguments.table)
    return max(code, read_splits((train, val))) if arguments.deep else code


def print_report(found: report.Report | None, settings: Any, table: str | None) -> int:
    """Print what a run would print; return the exit code: 1 if it would not start."""
    if found is None:
        print(f"{report.TITLE}: synthetic data have no files")
        return 0
    if table:
        try:
            Path(table).write_text(found.table, encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise UserError(f"--table {table}: {error.strerror}; name another file") from None
    try:
        lines, code = report.lines(found, report.KEY if settings.allow_missing_classes else ""), 0
    except UserError as error:
        lines, code = (*report.lines(found._replace(problems=[])), f"error: {error}"), 1
    print("\n".join(lines))
    return code


def read_splits(splits: Sequence[Dataset]) -> int:
    """Read every sample, and print those that cannot be read; return the exit code: 1 if there are any."""
    code = 0
    for title, split in zip(("training", "validation"), splits):
        read = read_all(split)
        bad, count = len(read.unreadable), len(split)
        print(f"{title}: {count} samples read, {bad} unreadable ({bad / count:.3%})")
        for name, reason in read.unreadable:
            print(f"  {name}: {reason}")
            code = 1
        for name, line in read.damaged:
            print(f"  {name}: damaged, but it can be read: {line}")
    return code


class Reading(NamedTuple):
    """What is wrong with the samples of a split, each with the name of a sample."""

    unreadable: list[tuple[str, str]]  # reasons
    damaged: list[tuple[str, str]]  # readable ones, and the first line that a decoder printed


def read_all(split: Dataset) -> Reading:
    """Read every sample once."""
    read = Reading([], [])
    with captured_stderr() as take_lines:
        for index in range(len(split)):
            try:
                split.sample(index, order.generator(0, "probe", index))
            except BadSample as error:
                read.unreadable.append((split.name(index), str(error)))
                take_lines()
                continue
            lines = take_lines()
            if lines:  # decoders do not name the file
                read.damaged.append((split.name(index), lines[0]))
    return read


@contextmanager
def captured_stderr() -> Iterator[Callable[[], list[str]]]:
    """Capture what this process writes to stderr within the block, libraries in C included.

    Returns:
        A function that returns the lines since its last call.
    """
    sys.stderr.flush()
    saved = os.dup(STDERR)
    with tempfile.TemporaryFile() as file:

        def take_lines() -> list[str]:
            if not os.fstat(file.fileno()).st_size:
                return []
            file.seek(0)
            lines = file.read().decode(errors="replace").splitlines()
            file.seek(0)  # the position that the descriptor of stderr has, too
            file.truncate()
            return lines

        os.dup2(file.fileno(), STDERR)
        try:
            yield take_lines
        finally:
            sys.stderr.flush()
            os.dup2(saved, STDERR)
            os.close(saved)
