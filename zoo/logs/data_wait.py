"""Share of the training time that is spent waiting for data, and its measured cause."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from zoo.data.stages import COLLATE, DECODE, READ, TRANSFORM, Seconds, total

LIMIT = 0.1  # share of an interval above which the cause is named
MIN_SECONDS = 1.0  # shorter intervals are joined, because they say little
DOING = {READ: "reading files", DECODE: "decoding", TRANSFORM: "transforming samples", COLLATE: "stacking batches"}
REMEDY = {
    READ: "raise data.threads, since reading leaves the cores idle, put data.root on a faster disk, or pack the files "
    "with zoo data prepare --pack",
    DECODE: "zoo data prepare writes files that decode faster (docs/data.md)",
    TRANSFORM: "zoo data prepare writes smaller images (docs/data.md)",
    COLLATE: "lower train.batch, or read in threads of the training process with data.workers=0",
}


class Interval(NamedTuple):
    """What one rank measured between two log lines; times in seconds.

    Attributes:
        elapsed: of training.
        wait: of the loop for data.
        reading: of the prefetch thread, for batches that were still being read.
        transport: of the prefetch thread, to get batches from the worker and copy them to the device.
        samples: read.
        stages: of reading them, added up over all reading threads.
        workers: processes that read; 0: threads of the training process.
        threads: reading threads per process.
        cores: that this rank has for itself.
    """

    elapsed: float
    wait: float
    reading: float
    transport: float
    samples: int
    stages: Seconds
    workers: int
    threads: int
    cores: float

    @property
    def share(self) -> float:
        """Share of the time that the loop waited."""
        return min(self.wait / max(self.elapsed, 1e-9), 1.0)

    def join(self, later: "Interval") -> "Interval":
        """Return this interval and a later one together."""
        return later._replace(
            elapsed=self.elapsed + later.elapsed,
            wait=self.wait + later.wait,
            reading=self.reading + later.reading,
            transport=self.transport + later.transport,
            samples=self.samples + later.samples,
            stages=total([self.stages, later.stages]),
        )


class Cause(NamedTuple):
    """Cause of waiting.

    Attributes:
        name: a stage, `workers` or `transport`.
        message: what was measured, and the key to change.
        interval: in which it was measured.
    """

    name: str
    message: str
    interval: Interval


def find_cause(interval: Interval) -> Cause | None:
    """Return why the loop waited, None if it waited little."""
    seconds = sum(interval.stages.values())
    if interval.share <= LIMIT or not interval.samples or not seconds:
        return None
    name, doing, remedy = _bottleneck(interval)
    shares = ", ".join(f"{stage} {value / seconds:.0%}" for stage, value in interval.stages.items())
    return Cause(
        name,
        f"waiting for data {interval.share:.0%} of the time, for {doing}: a sample takes "
        f"{seconds / interval.samples * 1e3:.3g} ms ({shares}) with data.workers={interval.workers} and "
        f"data.threads={interval.threads} on {interval.cores:g} core(s); {remedy}",
        interval,
    )


class CauseLog:
    """The causes that are worth a message: when waiting begins to matter, and when its cause changes."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._short: Interval | None = None

    def news(self, interval: Interval) -> Cause | None:
        """Return the cause of an interval if the last interval had another one or none."""
        joined = self._short.join(interval) if self._short else interval
        self._short = joined if joined.elapsed < MIN_SECONDS else None
        if self._short:
            return None
        cause = find_cause(joined)
        last, self._last = self._last, cause and cause.name
        return cause if cause and cause.name != last else None


def worst(intervals: list[Mapping[str, Any]]) -> Interval:
    """Return the interval of the rank that waited longest, for which the others wait too."""
    return max((Interval(**interval) for interval in intervals), key=lambda interval: interval.share)


def _bottleneck(interval: Interval) -> tuple[str, str, str]:
    """Return the name of the cause, what the loop waited for, and the remedy."""
    if interval.transport > interval.reading:
        return (
            "transport",
            "batches on their way between processes and to the device",
            "lower train.batch, or read in threads of the training process with data.workers=0",
        )
    slowest = max(interval.stages, key=lambda stage: interval.stages[stage])
    # Reading threads that would be busy all the time if the loop never waited.
    needed = sum(interval.stages.values()) / max(interval.elapsed - interval.wait, 1e-3)
    possible = math.floor(interval.cores / interval.threads)
    workers = min(math.ceil(needed / interval.threads), possible)
    if workers > interval.workers:
        return "workers", f"{DOING[slowest]} by too few processes", f"set data.workers={workers}"
    return slowest, DOING[slowest], REMEDY[slowest]
