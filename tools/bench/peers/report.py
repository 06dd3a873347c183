"""What was measured: medians and ratios per pass, as JSON and as a table."""

import statistics
from collections.abc import Sequence
from typing import Any

from zoo.bench.peers.contender import OURS, WORKERS, Contender
from zoo.bench.peers.passes import Seconds

Row = dict[str, Any]
HEADER = (
    f"| files | loader | CPU ms | gain | samples/s with {WORKERS} workers | gain | CPU ms there |",
    "|---|---|---|---|---|---|---|",
)


def rows(
    contenders: Sequence[Contender], one_thread: Sequence[list[Seconds]], workers: Sequence[list[Seconds]]
) -> list[Row]:
    """Return what was measured of each loader, of types that JSON can represent.

    Ratios are medians of those of the passes: of the CPU time in one thread, and of the time with worker processes, to
    that of this project's loader on the same files. Above 1, this project's loader is faster.
    """
    own = {contender.files: at for at, contender in enumerate(contenders) if contender.name == OURS}
    return [
        {
            "files": contender.files,
            "loader": contender.name,
            "cpu_ms": _median(1e3 * seconds.cpu for seconds in one_thread[at]),
            "wall_ms": _median(1e3 * seconds.wall for seconds in one_thread[at]),
            "cpu_ratio": ratio([seconds.cpu for seconds in one_thread[at]], _cpu(one_thread[own[contender.files]])),
            "samples_per_s": _median(1 / seconds.wall for seconds in workers[at]),
            "worker_cpu_ms": _median(1e3 * seconds.cpu for seconds in workers[at]),
            "ratio": ratio([seconds.wall for seconds in workers[at]], _wall(workers[own[contender.files]])),
            "passes": {
                "cpu_s": _cpu(one_thread[at]),
                "wall_s": _wall(one_thread[at]),
                "workers_wall_s": _wall(workers[at]),
            },
        }
        for at, contender in enumerate(contenders)
    ]


def ratio(seconds: Sequence[float], of: Sequence[float]) -> float:
    """Return the median of the ratios of two loaders' times, pass by pass."""
    return _median(a / b for a, b in zip(seconds, of, strict=True))


def table(measured: Sequence[Row]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [*HEADER, *(_line(row) for row in measured)]


def between_files(measured: Sequence[Row]) -> list[str]:
    """Return how much faster this loader reads other files of the same samples than the first ones, and all peers'."""
    own = [row for row in measured if row["loader"] == OURS]
    lines = []
    for row in own[1:]:
        for other in measured:
            if other["files"] != row["files"] and (
                other is own[0] or other["loader"] not in (OURS, "bare loop", "DALI")
            ):
                by = ratio(other["passes"]["cpu_s"], row["passes"]["cpu_s"])
                lines.append(f"{row['files']}: {by:.1f}x of {other['loader']} on {other['files']}, by CPU time")
    return lines


def _line(row: Row) -> str:
    own = row["loader"] == OURS
    cpu, wall = ("", "") if own else (f"{row['cpu_ratio']:.2f}x", f"{row['ratio']:.2f}x")
    cells = (
        row["files"] if own else "",
        row["loader"],
        f"{row['cpu_ms']:.3g}",
        cpu,
        f"{row['samples_per_s']:.{0 if row['samples_per_s'] >= 100 else 1}f}",
        wall,
        f"{row['worker_cpu_ms']:.3g}",
    )
    return "| " + " | ".join(cells) + " |"


def _cpu(times: Sequence[Seconds]) -> list[float]:
    return [seconds.cpu for seconds in times]


def _wall(times: Sequence[Seconds]) -> list[float]:
    return [seconds.wall for seconds in times]


def _median(values: Any) -> float:
    return statistics.median(list(values))
