"""Calls of several contenders, timed in turns so that what slows the machine down acts on all alike."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import psutil

MIN_PASSES = 2  # that count, however long they take


class Seconds(NamedTuple):
    """Seconds of a call: on the wall, and of the processor in all threads."""

    wall: float
    cpu: float


def interleave(
    calls: Mapping[str, Callable[[], object]],
    passes: int,
    *,
    warm_up: int = 0,
    block: int = 1,
    prepare: Callable[[str], object] | None = None,
    limit: float = math.inf,
    cpu_clock: Callable[[], float] = time.process_time,
) -> dict[str, list[Seconds]]:
    """Time calls in passes; in each, every contender has a turn, in an order that changes from pass to pass.

    Args:
        calls: by name of the contender; each waits for its result.
        prepare: is called with a name before its turn, and not timed: fills buffers or caches.
        limit: seconds after which no further pass begins, but for the first MIN_PASSES.
        cpu_clock: processor time in seconds; `family_cpu_seconds` counts children, too.

    Returns:
        By name the times of all calls, pass by pass.
    """
    times: dict[str, list[Seconds]] = {name: [] for name in calls}
    start = time.perf_counter()
    for number in range(-warm_up, passes):
        if number >= MIN_PASSES and time.perf_counter() - start > limit:
            break
        for name in rotated(list(calls), number + warm_up):
            if prepare:
                prepare(name)
            turn = [timed(calls[name], cpu_clock) for _ in range(block)]
            if number >= 0:
                times[name] += turn
    return times


def timed(call: Callable[[], object], cpu_clock: Callable[[], float] = time.process_time) -> Seconds:
    start, cpu_start = time.perf_counter(), cpu_clock()
    call()
    return Seconds(time.perf_counter() - start, cpu_clock() - cpu_start)


def rotated(names: Sequence[str], number: int) -> list[str]:
    """Return names in another order for each number: each comes first, and last, equally often."""
    first = number % len(names)
    turned = [*names[first:], *names[:first]]
    return turned if number // len(names) % 2 == 0 else turned[::-1]


def median_ratio(a: Sequence[Seconds], b: Sequence[Seconds]) -> Seconds:
    """Return the medians over the calls of a's time divided by b's, for both clocks."""
    walls, cpus = (
        statistics.median(x[kind] / y[kind] if y[kind] else math.nan for x, y in zip(a, b, strict=True))
        for kind in (0, 1)
    )
    return Seconds(walls, cpus)


def family_cpu_seconds() -> float:
    """Return the processor seconds of this process and its children so far."""
    children = psutil.Process().children(recursive=True)
    return time.process_time() + sum(times.user + times.system for times in (child.cpu_times() for child in children))
