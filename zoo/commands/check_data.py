"""Check the data of a recipe as a run does before its first step; with --deep, read every sample once too.

A run looks at names and sizes: classes that a split lacks, files that are missing or tiny, validation files that are
training files too. --deep also compares the contents of all files of the same size, counts the pixels of all masks,
and lists the samples that cannot be read, before a long run needs them.
"""

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from zoo import data, program
from zoo.commands.new_file import add_json_argument, print_report, require_new, write_new
from zoo.commands.options import add_recipe_arguments
from zoo.data import audit, order
from zoo.data.dataset import Dataset
from zoo.data.errors import BadSample, UserError
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

STDERR = 2  # its file descriptor


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code: 0 for sound data, 1 for faults."""
    arguments = parser().parse_args(argv)
    require_new(arguments.json, "--json")
    require_new(arguments.out, "--out")
    request = resolve_recipe(Options(arguments.config, arguments.override))
    settings = dataclasses.replace(request.config.data, cache=None)  # the files themselves are checked, no copies
    train, val = splits = data.find(request.resolved["data.name"].value).load(settings)
    found = audit.examine(train, val, arguments.deep)
    lines, problems = describe(found, settings)
    lines += train.notes
    readings = {}
    if arguments.deep:
        readings = {title: read_all(split) for title, split in zip(("training", "validation"), splits)}
        for (title, reading), split in zip(readings.items(), splits):
            lines += reading.lines(title, len(split))
    if found and arguments.out:
        write_new(found.table, arguments.out, "--out")
    report = {
        "problems": problems,
        "warnings": found.warnings if found else [],
        **{title: reading._asdict() for title, reading in readings.items()},
    }
    print_report(lines, report, arguments.json)
    return 1 if problems or any(reading.unreadable for reading in readings.values()) else 0


def parser() -> program.Parser:
    parser = program.parser(
        __doc__,
        "Exit codes: 0 nothing is wrong but for warnings, 1 classes are missing or samples cannot be read, "
        "2 an error to fix on your side.",
    )
    add_recipe_arguments(parser, ())
    parser.add_argument("--deep", action="store_true", help="read all contents, which takes as long as an epoch")
    parser.add_argument("--out", metavar="FILE", help="write the samples of every class to this new CSV file")
    add_json_argument(parser)
    return parser


def describe(found: audit.Report | None, settings: Any) -> tuple[list[str], list[str]]:
    """Return the lines that a run would print, and the problems that would keep it from starting."""
    if found is None:
        return [f"{audit.TITLE}: this data set does not list its samples, so only --deep checks them"], []
    try:
        return list(audit.lines(found, audit.KEY if settings.allow_missing_classes else "")), []
    except UserError as error:
        return [*audit.lines(found._replace(problems=[])), f"error: {error}"], found.problems


class Faults(NamedTuple):
    """Faults of the samples of a split, each with the name of a sample."""

    unreadable: list[tuple[str, str]]  # reasons
    damaged: list[tuple[str, str]]  # readable ones, and what is wrong, perhaps the first line that a decoder printed

    def lines(self, title: str, count: int) -> Iterator[str]:
        """Return a line for the split, and one for each of these samples."""
        bad = len(self.unreadable)
        yield f"{title}: {count} samples read, {bad} unreadable ({bad / count:.3%})"
        yield from (f"  {name}: {reason}" for name, reason in self.unreadable)
        yield from (f"  {name}: {line}" for name, line in self.damaged)


def read_all(split: Dataset) -> Faults:
    read = Faults([], [])
    with captured_stderr() as take_lines:
        for index in range(len(split)):
            try:
                split.sample(index, order.generator(0, "probe", index))
                remark = getattr(split, "remark", lambda *_: "")(index, order.generator(0, "probe", index))
            except BadSample as error:
                read.unreadable.append((split.name(index), str(error)))
                take_lines()
                continue
            lines = [remark] * bool(remark) + [f"damaged, but it can be read: {line}" for line in take_lines()]
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
