"""Updates of several contenders, timed in turn so that what else the machine does meets all of them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Seconds = dict[str, float]  # `wall`, and `cpu` of all threads of the process
Update = Callable[[], object]
TimedUpdate = Callable[[], Seconds]
OURS = "this trainer"


def measure(updates: Mapping[str, TimedUpdate], warm_up: int, passes: int) -> dict[str, list[Seconds]]:
    """Run every update, in an order that turns from pass to pass.

    Args:
        updates: by name; each returns its times.
        warm_up: passes that do not count.
        passes: that count.

    Returns:
        By name the times of each pass.
    """
    times: dict[str, list[Seconds]] = {name: [] for name in updates}
    for number in range(warm_up + passes):
        for name in rotated(list(updates), number):
            seconds = updates[name]()
            if number >= warm_up:
                times[name].append(seconds)
    return times


def timed(update: Update) -> Seconds:
    """Run an update, which waits for its result; return its time, and the CPU time of all threads in it."""
    start, cpu_start = time.perf_counter(), time.process_time()
    update()
    return {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu_start}


def rotated(names: list[str], number: int) -> list[str]:
    """Return names in another order for each number: each comes first, and last, equally often."""
    first = number % len(names)
    turned = names[first:] + names[:first]
    return turned if number // len(names) % 2 == 0 else turned[::-1]


def rows(times: Mapping[str, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Return medians, and the median over the passes of this trainer's time divided by each contender's."""
    own = times[OURS]
    return [
        {
            "name": name,
            **{
                f"{clock}_ms": 1e3 * statistics.median(seconds[clock] for seconds in passes)
                for clock in ("wall", "cpu")
            },
            **{
                f"{clock}_ratio": statistics.median(a[clock] / b[clock] for a, b in zip(own, passes, strict=True))
                for clock in ("wall", "cpu")
            },
        }
        for name, passes in times.items()
    ]


def table(name: str, measured: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a task in a Markdown table."""
    return [
        f"| {name if row['name'] == OURS else ''} | {row['name']} | {row['wall_ms']:.0f} | {_ratio(row, 'wall')} "
        f"| {row['cpu_ms']:.0f} | {_ratio(row, 'cpu')} |"
        for row in measured
    ]


HEADER = (
    "| task | | ms | this trainer's time / its | CPU ms | this trainer's CPU time / its |",
    "|---|---|---|---|---|---|",
)


def _ratio(row: Mapping[str, Any], clock: str) -> str:
    return "" if row["name"] == OURS else f"{row[f'{clock}_ratio']:.2f}"
