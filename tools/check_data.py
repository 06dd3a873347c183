"""Read every sample of a recipe's data once and list those that cannot be read, before a long run needs them."""

import argparse
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import data
from data import order
from data.errors import BadSample, UserError
from data.stream import Dataset
from zoo.run import cli

STDERR = 2  # its file descriptor


def cli_main() -> None:
    """Run as the command zoo-check-data."""
    sys.exit(main())


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code: 0 all readable, 1 some are not, 2 there is no data to read."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Exit codes: 0 all samples can be read, 1 some cannot, 2 an error to fix on your side.",
    )
    cli.add_recipe_arguments(parser, ())
    arguments = parser.parse_args(argv)
    try:
        request = cli.request(arguments.config, arguments.override)
        # The files themselves are checked, not their copies.
        settings = dataclasses.replace(request.config.data, cache=None)
        splits = data.find(request.resolved["data.name"].value).load(settings)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    code = 0
    for title, split in zip(("training", "validation"), splits):
        report = read_all(split)
        bad, count = len(report.unreadable), len(split)
        print(f"{title}: {count} samples read, {bad} unreadable ({bad / count:.3%})")
        for name, reason in report.unreadable:
            print(f"  {name}: {reason}")
            code = 1
        for name, line in report.damaged:
            print(f"  {name}: damaged, but it can be read: {line}")
    return code


class Report(NamedTuple):
    """What is wrong with the samples of a split, each with the name of a sample."""

    unreadable: list[tuple[str, str]]  # reasons
    damaged: list[tuple[str, str]]  # readable ones, and the first line that a decoder printed


def read_all(split: Dataset) -> Report:
    """Read every sample once."""
    report = Report([], [])
    with captured_stderr() as take_lines:
        for index in range(len(split)):
            try:
                split.sample(index, order.generator(0, "probe", index))
            except BadSample as error:
                report.unreadable.append((split.name(index), str(error)))
                take_lines()
                continue
            lines = take_lines()
            if lines:  # decoders do not name the file
                report.damaged.append((split.name(index), lines[0]))
    return report


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


if __name__ == "__main__":
    cli_main()
