"""Numbers of hosts and processes per host."""

import math
from typing import NamedTuple

from zoo.data.errors import UserError

MAX_PROCESSES = 65536


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


def parse(text: str, option: str) -> Cluster:
    """Read 8 (one host) or 4x8 (hosts x processes).

    Args:
        text: the value of a command line option.
        option: its name, for the message.

    Raises:
        UserError: `text` is something else.
    """
    numbers = text.strip().lower().split("x")
    is_number = all(number.isascii() and number.isdigit() and 0 < int(number) <= MAX_PROCESSES for number in numbers)
    if len(numbers) > 2 or not is_number:
        raise UserError(f"{option}: expected processes such as 8, or hosts x processes such as 4x8, got {text!r}")
    cluster = Cluster(1, int(numbers[0])) if len(numbers) == 1 else Cluster(int(numbers[0]), int(numbers[1]))
    if cluster.size > MAX_PROCESSES:
        raise UserError(f"{option}: {text} are more than {MAX_PROCESSES} processes")
    return cluster


def parse_all(text: str, option: str) -> list[Cluster]:
    """Read a list such as 1,8,4x8. Raises UserError if one of them is wrong."""
    return [parse(word, option) for word in text.split(",")]


def doublings(smaller: int, larger: int) -> float:
    """Return how often `smaller` must be doubled to reach `larger`; 0 if it is not smaller."""
    return max(math.log2(larger / smaller), 0.0)
