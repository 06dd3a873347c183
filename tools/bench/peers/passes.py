"""Timing of loaders in turn, so that what else the machine does meets all of them alike."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psutil

from zoo.bench.peers.contender import Contender

BUFFERED = 16  # batches that a stream may hold when its turn begins, not timed; this project's holds 14
IDLE_SHARE, IDLE_INTERVAL, MAX_SETTLING = 0.1, 0.1, 30.0  # of a core; seconds; seconds


class Seconds(NamedTuple):
    """Wall and CPU seconds per sample."""

    wall: float
    cpu: float


def one_thread(contenders: Sequence[Contender], batch: int, batches: int, passes: int) -> list[list[Seconds]]:
    """Read batches in this thread.

    Args:
        batch: samples of a batch.
        batches: of each loader in a pass.

    Returns:
        For each loader the times of each pass.
    """
    times: list[list[Seconds]] = [[] for _ in contenders]
    for contender in contenders:
        contender.read(0)  # imports decoders, opens files
    for number in range(passes):
        for contender, measured in zip(contenders, times):

            def read(contender: Contender = contender, first: int = 1 + number * batches) -> None:
                for number in range(first, first + batches):
                    contender.read(number)

            measured.append(_time(read, time.process_time, batch * batches))
    return times


def worker_processes(contenders: Sequence[Contender], batch: int, batches: int, passes: int) -> list[list[Seconds]]:
    """Consume streams that worker processes read: one at a time, while the others wait with full buffers.

    CPU time is that of all processes.
    """
    streams = []
    try:
        for contender in contenders:
            streams.append(contender.stream())
            next(streams[-1])
        times: list[list[Seconds]] = [[] for _ in contenders]
        for _ in range(passes):
            for stream, measured in zip(streams, times):
                _settle()
                for _ in range(BUFFERED):
                    next(stream)

                def read(stream: Any = stream) -> None:
                    for _ in range(batches):
                        next(stream)

                measured.append(_time(read, _cpu_seconds, batch * batches))
        return times
    finally:
        for stream in streams:
            stream.close()


def _time(read: Callable[[], None], cpu_clock: Callable[[], float], samples: int) -> Seconds:
    start, cpu_start = time.perf_counter(), cpu_clock()
    read()
    return Seconds((time.perf_counter() - start) / samples, (cpu_clock() - cpu_start) / samples)


def _settle() -> None:
    """Wait until no process of this program works any more."""
    deadline = time.monotonic() + MAX_SETTLING
    while time.monotonic() < deadline:
        start = _cpu_seconds()
        time.sleep(IDLE_INTERVAL)
        if _cpu_seconds() - start < IDLE_SHARE * IDLE_INTERVAL:
            return


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its workers so far."""
    workers = psutil.Process().children(recursive=True)
    return time.process_time() + sum(times.user + times.system for times in (worker.cpu_times() for worker in workers))
