"""The package as a program: where it lies, the parser of a command, and the command line that starts `zoo` anew."""

import argparse
import io
import math
import os
import select
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from zoo.data.errors import UserError, similar_name
from zoo.table import wrapped

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent  # the checkout, or site-packages
MAIN = str(PACKAGE / "__main__.py")
FULL_LINE = 100  # characters of a line of a source file that the next one goes on from
title = "zoo"  # what the user typed before the options: zoo predict, or predict.py; zoo.cli.run sets it


class Parser(argparse.ArgumentParser):
    """Parser whose errors are those of the user, with the nearest option."""

    def error(self, message: str, unknown: str = "") -> NoReturn:
        """Raise UserError. unknown: an option that there is not."""
        hint = similar_name(unknown, self._option_string_actions) or f"; {self.prog} --help shows the options"
        raise UserError(f"{message}{hint}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        return self._complete(*self.parse_known_args(args, namespace))

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        return self._complete(*self.parse_known_intermixed_args(args, namespace))

    def _complete(self, found: Any, unknown: list[str]) -> Any:
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}", unknown[0].partition("=")[0])
        return found


class Output(io.RawIOBase):
    """A standard stream that never fails: where its reader is gone or its disk is full, the rest is dropped.

    A run saves and logs to its files whoever reads what it prints: `train.py ... | head` goes on.

    Args:
        descriptor: of the stream, 1 or 2.
    """

    def __init__(self, descriptor: int):
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            return os.write(self.descriptor, data)
        except BlockingIOError:  # a terminal or pipe that another program made non-blocking
            select.select([], [self.descriptor], [])
            return self.write(data)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.descriptor)
            if self.descriptor == 1:
                print(f"nothing more is printed ({error.strerror}); the program goes on", file=sys.stderr, flush=True)
            return len(data)


def number(read: Callable[[str], Any], is_valid: Callable[[Any], bool], expected: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = read(text)
            if is_valid(value):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return convert


count = number(int, lambda value: 0 < value < 10**9, "a whole number of at least 1")
natural = number(int, lambda value: 0 <= value < 10**9, "a whole number of at least 0")
positive = number(float, lambda value: 0 < value < math.inf, "a number above 0")
fraction = number(float, lambda value: 0 < value < 1, "a fraction, such as 0.711")


def keep_printing() -> None:
    """Make stdout and stderr take every character and survive their reader; not those that a test has replaced."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # closed: a file there would get what libraries print
        pass
    os.close(descriptor)
    for descriptor, name in enumerate(("stdout", "stderr"), 1):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and isinstance(stream, io.TextIOWrapper | None):
            raw, encoding = io.BufferedWriter(Output(descriptor)), "utf-8"
            lines = name == "stderr"
            if stream:
                stream.flush()
                lines, encoding = lines or stream.line_buffering, stream.encoding
            setattr(sys, name, io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=lines))


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Layout of a help text: its paragraphs fill a narrower terminal, and its examples keep their lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_filled(text.strip("\n").split("\n"), width))


def _filled(lines: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines of a text for a terminal.

    What is not indented is a paragraph, up to a line with fewer than FULL_LINE characters.
    """
    paragraph: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""]):
        if line[:1] in ("", " "):
            yield wrapped(line, width)
            continue
        paragraph.append(line)
        if len(line) < FULL_LINE or following[:1] in ("", " "):
            is_wide = max(map(len, paragraph)) > width
            yield from textwrap.wrap(" ".join(paragraph), width) if is_wide else paragraph
            paragraph = []


def parser(description: str | None, epilog: str = "", **options: Any) -> Parser:
    """Return the parser of a command; %(prog)s in its texts is what the user typed."""
    return Parser(title, description=description, epilog=epilog, formatter_class=Formatter, **options)


def command(*arguments: str) -> list[str]:
    return [sys.executable, MAIN, *arguments]


def pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    """Return NAME=VALUE words as a dictionary.

    Raises:
        UserError: a word has no "=", or a name comes twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise UserError(f"{option} {word}: write NAME=VALUE")
        if name in found:
            raise UserError(f"{option} {name}: given twice; a label makes them differ, such as {name}@b")
        found[name] = value
    return found
