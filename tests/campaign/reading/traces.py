"""What a process that reads data has at a moment: memory, descriptors, threads, processes, batches."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

SETTLING = 10.0  # seconds in which threads and processes that are ending may end


class Traces(NamedTuple):
    """What may be left behind.

    Attributes:
        descriptors: number of open ones.
        batches: number of batches of workers that are mapped.
        threads: names.
        processes: command lines of all descendants.
        files: names in the folder for temporary files.
    """

    descriptors: int
    batches: int
    threads: list[str]
    processes: list[str]
    files: list[str]


def take(temporary: Path) -> Traces:
    """Return the traces of this process."""
    me = psutil.Process()
    lines = []
    for child in me.children(recursive=True):
        try:
            lines.append(" ".join(child.cmdline()))
        except psutil.NoSuchProcess:
            continue
    names = sorted(thread.name for thread in threading.enumerate())
    batches = Path("/proc/self/maps").read_text().count("/memfd:element")
    return Traces(me.num_fds(), batches, names, sorted(lines), sorted(os.listdir(temporary)))


def additions(before: Traces, take_now: Callable[[], Traces]) -> list[str]:
    """Return a line for everything that there is more of than before, when nothing changes any more."""
    end = time.monotonic() + SETTLING
    while True:
        now = take_now()
        found = [
            f"{name}: {new} instead of {old}"
            for name, old, new in zip(Traces._fields, before, now)
            if (new > old if isinstance(new, int) else len(new) > len(old))
        ]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def memory() -> tuple[int, int]:
    """Return the resident bytes of this process and of its descendants."""
    me = psutil.Process()
    others = 0
    for child in me.children(recursive=True):
        try:
            others += child.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return me.memory_info().rss, others
