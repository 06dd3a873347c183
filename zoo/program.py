"""The package as a program: where it lies, the parser of a command, and the command line that starts `zoo` anew."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from zoo.data.errors import UserError

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # the checkout, or site-packages
MAIN = str(PACKAGE / "__main__.py")
RENAMED = {"--table": "--out", "--world": "--processes", "--format": "--json"}  # options of version 0.1
title = "zoo"  # what the user typed before the options: zoo predict, or predict.py; zoo.cli.run sets it


class Parser(argparse.ArgumentParser):
    """Parser whose errors are those of the user; an option that was renamed is answered with its new name."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        options = [word.partition("=")[0] for word in message.split()]
        renamed = [f"{word} is now {RENAMED[word]}" for word in options if word in RENAMED]
        raise UserError("; ".join(renamed) or f"{message}; {self.prog} --help shows the options")


def parser(description: str | None, epilog: str = "", **options: Any) -> Parser:
    """Return the parser of a command, whose texts keep their lines; %(prog)s in them is what the user typed."""
    layout = argparse.RawDescriptionHelpFormatter
    return Parser(title, description=description, epilog=epilog, formatter_class=layout, **options)


def command(*arguments: str) -> list[str]:
    """Return the command line of `zoo ARGUMENTS` in this Python."""
    return [sys.executable, MAIN, *arguments]


def source_files() -> Iterator[Path]:
    """Yield all Python files of the package, also those behind the links zoo/data and zoo/bench."""
    for folder, _, names in os.walk(PACKAGE, followlinks=True):
        yield from (Path(folder, name) for name in names if name.endswith(".py"))
