"""Time this project's input pipelines against bare loops, DALI and other projects' loaders, on the same files."""

import argparse
import itertools
import multiprocessing
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from evidence.peers import copies, loaders
from evidence.peers.loaders import OURS, WORKERS, Loader
from zoo import program
from zoo.bench import upstream
from zoo.bench.interleave import Seconds, family_cpu_seconds, interleave, median_ratio
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.program import count
from zoo.table import table

EPILOG = """\
Each task runs in a process of its own, and its loaders in turn: first with two worker processes, then in one thread,
about ten minutes in all on two idle cores.
The files are made at first use (0.6 GB, minutes). docs/performance.md says what to clone and install for the loaders
of other projects; one that is missing is left out and named.

examples
  %(prog)s --upstream ~/clones
  %(prog)s --upstream ~/clones --task imagenet faces --json loading.json"""
BUFFERED = 16  # batches that a stream may hold when its turn begins, not timed; this project's holds 14
IDLE_SHARE, IDLE_INTERVAL, MAX_SETTLING = 0.1, 0.1, 30.0  # of a core; seconds; seconds
COLUMNS = ("files", "loader", "CPU ms", "gain", f"samples/s with {WORKERS} workers", "gain", "CPU ms there")
Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("--upstream", required=True, metavar="DIR", help="folder of the copies of other projects")
    add("--task", nargs="+", choices=loaders.TASKS, default=list(loaders.TASKS), help="default: all")
    add("--files", default="datasets/peers", metavar="DIR", help="folder of the files to read; default %(default)s")
    add("-n", "--passes", type=count, default=7, metavar="N", help="turns of each loader; default %(default)s")
    add_json_argument(parser)
    arguments = parser.parse_args(argv)
    upstream.require_clones(arguments.upstream)
    require_new(arguments.json, "--json")
    if len(arguments.task) == 1:
        report = {name: measure(name, arguments) for name in arguments.task}
    else:  # each task in a process of its own, where the libraries of the others are not loaded
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as pool:
            report = dict(zip(arguments.task, pool.map(partial(measure, arguments=arguments), arguments.task)))
    report["machine"] = copies.describe_machine(arguments.upstream)
    print_report(describe(report), report, arguments.json)
    return 0


def measure(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the loaders of a task; return what was measured, of JSON's types."""
    import torch

    torch.set_num_threads(1)  # as in worker processes
    os.makedirs(arguments.files, exist_ok=True)
    task, passes = loaders.TASKS[name](arguments.files, arguments.upstream), arguments.passes
    in_thread, in_workers = task.batches
    # Worker processes first: they are forked, and this process has not read anything yet.
    of_workers = worker_processes(task.loaders, in_workers, passes)
    one_thread = read_here(task.loaders, in_thread, passes)
    samples = (task.batch * in_thread, task.batch * in_workers)
    return {
        "rows": rows(task.loaders, one_thread, of_workers, samples),
        "batch": task.batch,
        "passes": passes,
        "skipped": task.skipped,
        "load": os.getloadavg()[0],
    }


def read_here(of: Sequence[Loader], batches: int, passes: int) -> list[list[Seconds]]:
    """Time reading in this thread; return for each loader the times of each pass. batches: of a loader in a pass."""

    def read(loader: Loader, numbers: itertools.count) -> None:
        for _ in range(batches):
            loader.read(next(numbers))

    calls = {str(at): partial(read, loader, itertools.count()) for at, loader in enumerate(of)}
    return list(interleave(calls, passes, warm_up=1).values())  # the first one imports decoders and opens files


def worker_processes(of: Sequence[Loader], batches: int, passes: int) -> list[list[Seconds]]:
    """Time streams that worker processes read: one at a time, while the others wait with full buffers.

    CPU time is that of all processes.
    """
    streams: dict[str, Any] = {}

    def take(name: str, count: int) -> None:
        for _ in range(count):
            next(streams[name])

    def prepare(name: str) -> None:
        _settle()
        take(name, BUFFERED)

    try:
        for at, loader in enumerate(of):
            streams[str(at)] = loader.stream()
            take(str(at), 1)
        calls = {name: partial(take, name, batches) for name in streams}
        return list(interleave(calls, passes, prepare=prepare, cpu_clock=family_cpu_seconds).values())
    finally:
        for stream in streams.values():
            stream.close()


def _settle() -> None:
    """Wait until no process of this program works any more."""
    deadline = time.monotonic() + MAX_SETTLING
    while time.monotonic() < deadline:
        start = family_cpu_seconds()
        time.sleep(IDLE_INTERVAL)
        if family_cpu_seconds() - start < IDLE_SHARE * IDLE_INTERVAL:
            return


def rows(
    of: Sequence[Loader], here: Sequence[list[Seconds]], workers: Sequence[list[Seconds]], samples: tuple[int, int]
) -> list[Row]:
    """Return the figures of each loader, of JSON's types, from its times in this thread and with worker processes.

    Ratios are medians of those of the passes: of the CPU time in one thread, and of the time with worker processes, to
    that of this project's loader on the same files. Above 1, this project's loader is faster.
    """
    own = {loader.files: at for at, loader in enumerate(of) if loader.name == OURS}
    return [
        {
            "files": loader.files,
            "loader": loader.name,
            "cpu_ms": 1e3 * statistics.median(seconds.cpu for seconds in here[at]) / samples[0],
            "cpu_ratio": median_ratio(here[at], here[own[loader.files]]).cpu,
            "samples_per_s": samples[1] / statistics.median(seconds.wall for seconds in workers[at]),
            "ratio": median_ratio(workers[at], workers[own[loader.files]]).wall,
            "worker_cpu_ms": 1e3 * statistics.median(seconds.cpu for seconds in workers[at]) / samples[1],
        }
        for at, loader in enumerate(of)
    ]


def describe(report: dict[str, Any]) -> list[str]:
    """Return the lines of a report: a table in Markdown, and the loaders that are left out."""
    cells, skipped = [], []
    for task in (value for name, value in report.items() if name != "machine"):
        skipped += [f"left out: {reason}" for reason in task["skipped"]]
        for row in task["rows"]:
            is_own = row["loader"] == OURS
            gains = ["" if is_own else f"{row[key]:.2f}x" for key in ("cpu_ratio", "ratio")]
            speed = f"{row['samples_per_s']:.{0 if row['samples_per_s'] >= 100 else 1}f}"
            cpu = (f"{row['cpu_ms']:.3g}", f"{row['worker_cpu_ms']:.3g}")
            cells.append((row["files"] if is_own else "", row["loader"], cpu[0], gains[0], speed, gains[1], cpu[1]))
    return [*table(cells, COLUMNS, markdown=True), *skipped]
