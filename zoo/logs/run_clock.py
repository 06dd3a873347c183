"""The clock of a run's events: Unix seconds when a process begins, and a monotonic clock from there on.

So a clock of the host that is set while a process runs changes nothing in its figures. Between processes of the same
boot of a host, the time since that boot counts; otherwise the clock of the host, if it is plausible.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
ANCHORS = ("begin", "resume")  # events with the field `clock`
LONGEST = 366 * 86400.0  # seconds between two processes of a run; more is taken for a clock that is wrong
LARGEST = 1e15  # of a time in seconds; JSON may have integers that no float can hold
NOTABLE = 60.0  # seconds by which the clock of the host may differ without a word


class Reading(NamedTuple):
    """Unix seconds of an event, and what `clock` records of it."""

    time: float
    clock: dict[str, Any]


def uptime() -> float:
    """Return the seconds since the boot of this host, sleep included; a monotonic clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot() -> str | None:
    """Return what tells this boot of this host from others; None where the kernel does not tell."""
    try:
        return hashlib.sha256(BOOT_ID.read_bytes()).hexdigest()[:16]
    except OSError:
        return None


class RunClock:
    """The clock of the events that this process adds to a run.

    Attributes:
        note: what is wrong with the clock of the host, for the user; None if nothing is.
    """

    def __init__(self, earlier: Iterable[Mapping[str, Any]]):
        """Start the clock. earlier: all events of the run so far, also those that a resume has reverted."""
        wall, self._uptime, self._boot = time.time(), uptime(), boot()
        last, anchor = _last(earlier, self._boot)
        self._start, self.note = wall, None
        if anchor is not None and self._uptime >= anchor[1]:
            self._start = max(anchor[0] + self._uptime - anchor[1], last)
            if abs(wall - self._start) > NOTABLE:
                self.note = (
                    f"the clock of this host was set since the run began, by about {wall - self._start:.0f} s; the "
                    "times of events go on as if it had not been"
                )
        elif last and not last <= wall <= last + LONGEST:
            self._start = last
            direction = "before" if wall < last else "more than a year after"
            self.note = (
                f"the clock of this host is {direction} the last event of the run; the time in between, which is "
                "unknown, counts as none"
            )

    def read(self) -> Reading:
        """Return the time now."""
        now = uptime()
        return Reading(self.at(now), {"boot": self._boot, "uptime": now})

    def at(self, uptime: float) -> float:
        """Return the Unix seconds of a time of this process, which `uptime` returned."""
        return self._start + uptime - self._uptime


def is_time(value: Any) -> bool:
    """Return whether a value of an event may be a time in Unix seconds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST  # not NaN


def _last(events: Iterable[Mapping[str, Any]], this_boot: str | None) -> tuple[float, tuple[float, float] | None]:
    """Return the latest time of all events, 0 without any, and the last anchor of this boot: its time and uptime."""
    last: float = 0.0
    anchor: tuple[float, float] | None = None
    for event in events:
        now, clock = event.get("time"), event.get("clock")
        if now is None or not is_time(now):
            continue
        last = max(last, now)
        if isinstance(clock, dict) and this_boot and clock.get("boot") == this_boot and is_time(clock.get("uptime")):
            anchor = now, clock["uptime"]
    return last, anchor
