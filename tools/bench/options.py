"""Values of options, as types of argparse, which prints their errors; processes on hosts."""

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from zoo.data.errors import UserError
from zoo.distributed.launchers import read_world


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """Read a whole number of at least 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or not least <= int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """Read a finite number above 0."""
    return _number(text, 0 < float(text) < math.inf, "a number above 0")


def not_negative(text: str) -> float:
    """Read a finite number of at least 0."""
    return _number(text, 0 <= float(text) < math.inf, "a number of at least 0")


def fraction(text: str) -> float:
    """Read a number between 0 and 1."""
    return _number(text, 0 < float(text) < 1, "a fraction, such as 0.711")


def _number(text: str, is_valid: bool, expected: str) -> float:
    if not is_valid:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return float(text)


def several(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Return a type of argparse: different values, separated by commas."""

    def read_several(text: str) -> list[Any]:
        names = [name.strip() for name in text.split(",")]
        if not all(names) or len(set(names)) < len(names):
            raise argparse.ArgumentTypeError(f"expected different values, separated by commas, got {text!r}")
        return [read(name) for name in names]

    return read_several


class Cluster(NamedTuple):
    """Hosts with equal numbers of processes, one per card."""

    hosts: int
    cards: int  # per host

    @property
    def size(self) -> int:
        """Processes of all hosts."""
        return self.hosts * self.cards

    def __str__(self) -> str:
        return f"{self.hosts}x{self.cards}"


def cluster(text: str) -> Cluster:
    """Read processes of one host or HOSTSxPROCESSES."""
    try:
        return Cluster(*read_world(text))
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
