"""Times of single updates between two log lines: quantiles over the updates, of the slowest rank."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class StepTimes:
    """Times from update to update of this rank's loop, evaluations and saves left out.

    An update's time contains everything since the update before: waiting for data, computing, exchanging signals with
    the other ranks and, where one came before, the log line. On a device that works asynchronously the host's clock
    would tell when updates are launched; where the framework records events there, they are timed by the device.

    Args:
        record_event: records an event in the queue of the device (World.record_event).
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
    """Return which clock a stamp is from, "device" or "host"."""
    return "host" if isinstance(time_stamp, float) else "device"


def slowest(ranks: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return step_ms of the rank that took longest, and data_wait_ms of the one that waited longest.

    Args:
        ranks: what `StepTimes.read` returns on each.
    """
    return {key: max((rank[key] for rank in ranks), key=lambda times: times["sum"]) for key in ranks[0]}


def _summary(seconds: np.ndarray) -> dict[str, float]:
    """Return quantiles, linearly interpolated, and more of some times, in milliseconds."""
    milliseconds = 1e3 * seconds
    quantiles = np.quantile(milliseconds, list(QUANTILES.values())).tolist()
    return {**dict(zip(QUANTILES, quantiles)), "max": float(milliseconds.max()), "sum": float(milliseconds.sum())}
