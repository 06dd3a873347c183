"""Values of options: counts, and processes on hosts."""

import argparse
from typing import NamedTuple

from zoo.data.errors import UserError
from zoo.distributed.launchers import read_world

MAX_PROCESSES = 65536


def count(text: str) -> int:
    """Read a whole number of at least 1, as a type of argparse, which prints the error."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """Read a whole number of at least 0, as a type of argparse, which prints the error."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or not least <= int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
    return int(text)


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
    """Read processes of one host or HOSTSxPROCESSES, as a type of argparse, which prints the error."""
    try:
        return Cluster(*read_world(text))
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_clusters(text: str, option: str) -> list[Cluster]:
    """Read a list of processes of one host or hosts x processes, such as 1,8,4x8.

    Args:
        text: the value of a command line option.
        option: its name, for the message.

    Raises:
        UserError: `text` is something else.
    """
    clusters = []
    for word in text.lower().split(","):
        hosts, processes = read_world(word, option)
        if hosts * processes > MAX_PROCESSES:
            raise UserError(f"{option} {text}: expected at most {MAX_PROCESSES} processes")
        clusters.append(Cluster(hosts, processes))
    return clusters
