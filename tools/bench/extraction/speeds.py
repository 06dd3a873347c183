"""Throughput of one run, as DLPerf's scripts count it and as it should be counted."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from zoo.bench.extraction.names import LogName


class Window(NamedTuple):
    """Steps of a run: the first `drop` are left out, the next ones up to step `last` are counted."""

    drop: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.drop


class Speeds(NamedTuple):
    """Samples per second of one run; None where a way of counting gives none.

    Attributes:
        published: as the script counts.
        corrected: from the figures that the framework prints, over the right steps.
        by_time: from the time stamps of the lines, which also counts the waiting for data.
        remarks: what the script counts wrongly in this log.
    """

    published: float | None
    corrected: float | None
    by_time: float | None
    remarks: tuple[str, ...]


Count = Callable[[Sequence[str], LogName, Window], Speeds]  # lines, name and steps of a log
