"""Speed mode: the time of a fixed number of updates, without evaluations and checkpoints."""

import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.logs import step_times

if TYPE_CHECKING:
    from zoo.run.session import Run


@dataclass(frozen=True)
class Window:
    """Updates of a speed run.

    Attributes:
        drop: updates before the clock starts, at least 1: the first one compiles and warms up.
        count: updates that are timed.
    """

    drop: int = 20
    count: int = 100

    @property
    def steps(self) -> int:
        """Updates of the whole run."""
        return self.drop + self.count


def measure(run: "Run", window: Window) -> None:
    """Train for the updates of a window and add a `speed` event.

    The loop is that of training: it reads data, exchanges signals, and logs every train.log_every. The device is waited
    for only where the clock starts and ends, and by the logs.
    """
    trainer, lr, log_every = run.job.trainer, run.job.lr, run.config.train.log_every
    clocks: list[tuple[float, float]] = []  # time and seconds of waiting for data, where the window begins and ends
    stamps: list[Any] = []  # of each update that is timed, and of the one before
    for step in run.steps():
        output = trainer.step(run.batches.take(), lr(step), step)
        done = step + 1  # updates
        if run.poll(done):
            run.finish()
            return
        if done < window.steps and run.due(log_every, done):
            run.log(done, output)
        if done in (window.drop, window.steps):
            trainer.read(output)  # waits for the device
            clocks.append((time.perf_counter(), run.batches.data_wait))
        if done >= window.drop:
            stamps.append(step_times.stamp(run.job.world.record_event))
    run.log(window.steps, output)
    (start, waited_before), (end, waited) = clocks
    _log(run, window, end - start, waited - waited_before, stamps)
    run.finish()


def _log(run: "Run", window: Window, seconds: float, data_wait: float, stamps: list[Any]) -> None:
    """Add the `speed` event, with the time of the rank that took longest and the updates of rank 0."""
    ranks = run.job.group.all_gather({"seconds": seconds, "data_wait": data_wait})
    slowest = max(rank["seconds"] for rank in ranks)
    samples = window.count * run.job.clock.global_batch
    step_ms = [1000 * step_times.elapsed(start, end) for start, end in pairwise(stamps)]
    quantiles = {f"p{q}": float(np.percentile(step_ms, q)) for q in (50, 90, 99)}
    flops = run.facts["flops_per_sample"]
    run.journal.add(
        "speed",
        **asdict(window),
        samples=samples,
        seconds=slowest,
        samples_per_s=samples / slowest,
        step_ms={**quantiles, "all": step_ms, "clock": step_times.clock_of(stamps[0])},
        data_wait_fraction=max(rank["data_wait"] for rank in ranks) / slowest,
        flops_per_s=None if flops is None else 3 * flops * samples / slowest,
    )
