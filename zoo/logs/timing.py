"""Measurements between two log lines: throughput, times of single updates, and why the loop waits for data."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.stages import COLLATE, DECODE, READ, TRANSFORM, Seconds, total

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
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


class Throughput:
    """Stopwatch of training time that is paused during evaluation and saving."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._elapsed, self._samples, self._data_wait = 0.0, 0, 0.0
        self.elapsed = 0.0  # seconds of training in the interval that `read` has ended last

    def add(self, samples: int) -> None:
        self._samples += samples

    def pause(self) -> None:
        """Stop the clock."""
        self._elapsed += time.perf_counter() - self._started

    def resume(self) -> None:
        """Start the clock again after `pause`."""
        self._started = time.perf_counter()

    def read(self, data_wait: float) -> dict[str, float]:
        """Return the throughput and the share of waiting since the last call, and start the next interval.

        data_wait: seconds spent waiting for data since the start of the run (`Prefetcher.data_wait`).
        """
        self.pause()
        self.elapsed = elapsed = max(self._elapsed, 1e-9)
        throughput = {
            "samples_per_s": self._samples / elapsed,
            "data_wait_fraction": min((data_wait - self._data_wait) / elapsed, 1.0),
        }
        self._elapsed, self._samples, self._data_wait = 0.0, 0, data_wait
        self.resume()
        return throughput


class StepTimes:
    """Times from update to update of this rank's loop, evaluations and saves left out.

    An update's time contains everything since the update before: waiting for data, computing, exchanging signals with
    the other ranks and, where one came before, the log line. On a device that works asynchronously the host's clock
    would show when updates are launched; where World.record_event records events there, they are timed by the device.
    """

    def __init__(self, record_event: Callable[[], Any]):
        self._record_event = record_event
        self._start = stamp(self._record_event)
        self._segments: list[tuple[Any, Any]] = []  # of the current update
        self._updates: list[list[tuple[Any, Any]]] = []
        self._waits: list[float] = []
        self._waited = 0.0
        self._is_first = True

    def add(self, data_wait: float) -> None:
        """End an update. data_wait: seconds that the loop has waited for data since it began."""
        self.pause()
        self._updates.append(self._segments)
        self._segments, self._start = [], self._segments[-1][1]
        self._waits.append(data_wait - self._waited)
        self._waited = data_wait

    def pause(self) -> None:
        """Stop the clock."""
        self._segments.append((self._start, stamp(self._record_event)))

    def resume(self) -> None:
        """Start the clock again after `pause`."""
        self._start = stamp(self._record_event)

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the times of the updates since the last call; the device must have finished them.

        The process's first update, in which frameworks compile, allocate and tune, is not among them unless there is no
        other.

        Returns:
            `step_ms` and `data_wait_ms`: quantiles in milliseconds, `max` and `sum`. step_ms also has `count`; `clock`,
            "device" or "host"; and `first`, the time of the process's first update, if it is one of these.
        """
        seconds = np.array([sum(elapsed(*segment) for segment in update) for update in self._updates])
        waits, clock = np.array(self._waits), clock_of(self._start)
        first = {}
        if self._is_first:
            first = {"first": 1e3 * float(seconds[0])}
            if len(seconds) > 1:
                seconds, waits = seconds[1:], waits[1:]
        self._updates, self._waits, self._is_first = [], [], False
        step_ms = {**_summary(seconds), "count": len(seconds), "clock": clock, **first}
        return {"step_ms": step_ms, "data_wait_ms": _summary(waits)}


def stamp(record_event: Callable[[], Any]) -> Any:
    """Return the time: an event of the device, or the host's clock in seconds."""
    event = record_event()
    return time.perf_counter() if event is None else event


def elapsed(start: Any, end: Any) -> float:
    """Return the seconds between two stamps of the same clock; the device must have reached them."""
    return end - start if isinstance(start, float) else 1e-3 * start.elapsed_time(end)


def clock_of(time_stamp: Any) -> str:
    return "host" if isinstance(time_stamp, float) else "device"


def slowest(ranks: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return step_ms of the rank that took longest, and data_wait_ms of the one that waited longest, of StepTimes."""
    return {key: max((rank[key] for rank in ranks), key=lambda times: times["sum"]) for key in ranks[0]}


def _summary(seconds: np.ndarray) -> dict[str, float]:
    """Return quantiles, linearly interpolated, and more of some times, in milliseconds."""
    milliseconds = 1e3 * seconds
    quantiles = np.quantile(milliseconds, list(QUANTILES.values())).tolist()
    return {**dict(zip(QUANTILES, quantiles)), "max": float(milliseconds.max()), "sum": float(milliseconds.sum())}


class Interval(NamedTuple):
    """Measurements of one rank between two log lines; times in seconds."""

    elapsed: float
    wait: float  # of the loop, for data
    reading: float  # of the prefetch thread, for batches that were still being read
    transport: float  # of the prefetch thread, to get batches from the worker and copy them to the device
    samples: int
    stages: Seconds  # of reading the samples, added up over all reading threads
    workers: int  # processes that read; 0: threads of the training process
    threads: int  # that read, per process
    cores: float  # that this rank has for itself

    @property
    def share(self) -> float:
        return min(self.wait / max(self.elapsed, 1e-9), 1.0)

    def join(self, later: "Interval") -> "Interval":
        return later._replace(
            elapsed=self.elapsed + later.elapsed,
            wait=self.wait + later.wait,
            reading=self.reading + later.reading,
            transport=self.transport + later.transport,
            samples=self.samples + later.samples,
            stages=total([self.stages, later.stages]),
        )


class Cause(NamedTuple):
    name: str  # a stage, `workers` or `transport`
    message: str  # what was measured, and the key to change
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
