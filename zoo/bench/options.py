"""Values of options, as types of argparse, which prints their errors; processes on hosts."""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

from zoo.data.errors import UserError
from zoo.distributed.launchers import read_world


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
        return self.hosts * self.cards

    def __str__(self) -> str:
        return f"{self.hosts}x{self.cards}"


def cluster(text: str) -> Cluster:
    """Read processes of one host or HOSTSxPROCESSES."""
    try:
        return Cluster(*read_world(text))
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
