"""Cost of the control group for rank 0, which has all other ranks at the other end of its connections.

python -m zoo.bench.timing.control_group [--ranks 8,64,256,1024] [--step MS]

The other ranks are threads of a second process. They run the code of a run without its steps, so they are always ahead
of rank 0: what it waits for is its own work. Its steps are sleeps. The table has the time of an exchange and of a log
event, and the processor time of the process per step: exchanges and heartbeats, and log events beside them.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from zoo.data.errors import UserError
from zoo.distributed import file_limit
from zoo.distributed.polling import SECONDS_PER_RANK, Polling
from zoo.distributed.rendezvous import connect
from zoo.trainer.world import Launch

LOG_EVERY = 20  # steps
WARM_UP = 20  # steps, in which the distance of the exchanges adapts
MIN_SECONDS, EXCHANGES = 5, 3  # that are measured
JOIN_TIMEOUT = 120.0  # seconds
STACK = 1 << 18  # bytes of a simulated rank's thread
MOST = 8192  # ranks
# Of the size of what a rank reports for a train event.
REPORT = {"loss": 1.2345678, **{f"measured_{number}": {"a": 0.123456789, "b": 1e-3} for number in range(12)}}


class Cost(NamedTuple):
    """What the control group costs rank 0.

    Attributes:
        ranks: world size.
        join: seconds until all have joined.
        interval: steps from one exchange to the next, of the last two.
        exchange, log: milliseconds of one exchange and of gathering the reports for one train event.
        cpu: milliseconds of processor time per step, of the whole process without log events.
        log_cpu: the same of log events alone, one every LOG_EVERY steps.
    """

    ranks: int
    join: float
    interval: int
    exchange: float
    log: float
    cpu: float
    log_cpu: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m zoo.bench.timing.control_group",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ranks", default="8,64,256,1024", metavar="N,N,...", help="world sizes; default %(default)s")
    parser.add_argument("--step", type=float, default=50, metavar="MS", help="length of a step; default %(default)s")
    arguments = parser.parse_args(argv)
    try:
        sizes = _sizes(arguments.ranks)
        if not 1 <= arguments.step <= 10000:
            raise UserError(f"--step {arguments.step:g}: expected 1 to 10000 milliseconds")
        print("\n".join(table([measure(size, arguments.step / 1e3) for size in sizes], arguments.step)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def measure(size: int, step: float) -> Cost:
    """Measure a world of `size` ranks, whose steps take `step` seconds."""
    job = f"control group {os.getpid()} {size}"
    steps = WARM_UP + int(max(MIN_SECONDS, EXCHANGES * size * SECONDS_PER_RANK) / step)
    others = multiprocessing.get_context("spawn").Process(target=simulate, args=(size, steps, job), daemon=True)
    others.start()
    began = time.monotonic()
    group = connect(Launch(0, size, 0, "simulated", job=job), 300, JOIN_TIMEOUT)
    join, polling = time.monotonic() - began, Polling(group)
    group.all_gather(None)  # all threads have started
    exchanges: list[float] = []
    logs: list[float] = []
    cpu, log_cpu, at = 0.0, 0.0, [0, 0]
    for done in range(1, steps + 1):
        time.sleep(step)
        if polling.is_due(done):
            at = [at[-1], done]
            exchanges.append(_seconds(polling.exchange, done, []))
        if done % LOG_EVERY == 0:
            before = time.thread_time()
            logs.append(_seconds(group.gather, REPORT))
            log_cpu += time.thread_time() - before
        if done == WARM_UP:
            cpu, log_cpu, exchanges, logs = time.process_time(), 0.0, [], []
    cpu = time.process_time() - cpu
    group.close()
    others.join()
    milliseconds = 1e3 / (steps - WARM_UP)
    exchange, log = (statistics.median(values) * 1e3 for values in (exchanges, logs))
    return Cost(size, join, at[1] - at[0], exchange, log, (cpu - log_cpu) * milliseconds, log_cpu * milliseconds)


def simulate(size: int, steps: int, job: str) -> None:
    """Run all ranks but rank 0, each in a thread."""
    file_limit.ensure(4 * size)
    threading.stack_size(STACK)
    threads = [threading.Thread(target=_rank, args=(rank, size, steps, job)) for rank in range(1, size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def table(costs: Sequence[Cost], step: float) -> list[str]:
    """Return the lines of a Markdown table. step: in milliseconds."""
    lines = [
        f"| ranks | join, s | exchange every | exchange, ms | CPU per step, ms | of a {step:g} ms step | log event, ms "
        "| its CPU per step, ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cost in costs:
        every = "step" if cost.interval == 1 else f"{cost.interval} steps"
        lines.append(
            f"| {cost.ranks} | {cost.join:.1f} | {every} | {cost.exchange:.2f} | {cost.cpu:.2f} "
            f"| {cost.cpu / step:.1%} | {cost.log:.2f} | {cost.log_cpu:.2f} |"
        )
    return lines


def _rank(rank: int, size: int, steps: int, job: str) -> None:
    group = connect(Launch(rank, size, rank, "simulated", job=job), 300, JOIN_TIMEOUT)
    polling = Polling(group)
    group.all_gather(None)
    for done in range(1, steps + 1):
        if polling.is_due(done):
            polling.exchange(done, [])
        if done % LOG_EVERY == 0:
            group.gather(REPORT)
    group.close()


def _seconds(operation: Any, *arguments: Any) -> float:
    start = time.perf_counter()
    operation(*arguments)
    return time.perf_counter() - start


def _sizes(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() and 2 <= int(word) <= MOST for word in words):
        raise UserError(f"--ranks {text}: expected numbers from 2 to {MOST}, separated by commas")
    return [int(word) for word in words]


if __name__ == "__main__":
    sys.exit(main())
