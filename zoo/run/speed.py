"""Speed mode: the time of a fixed number of updates, without evaluations and checkpoints."""

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

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
    for only where the clock starts and ends, and by the logs. On a device that works asynchronously, the time of a
    single update is that of its launch; their sum is exact.
    """
    trainer, lr, log_every = run.job.trainer, run.job.lr, run.config.train.log_every
    stamps: list[float] = []
    data_wait = 0.0
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
        if done == window.drop:
            data_wait = run.batches.data_wait
        if done >= window.drop:
            stamps.append(time.perf_counter())
    data_wait = run.batches.data_wait - data_wait
    run.log(window.steps, output)
    _log(run, window, stamps, data_wait)
    run.finish()


def _log(run: "Run", window: Window, stamps: list[float], data_wait: float) -> None:
    """Add the `speed` event, with the times of the rank that took longest."""
    seconds = stamps[-1] - stamps[0]
    ranks = run.job.group.all_gather({"seconds": seconds, "data_wait": data_wait})
    slowest = max(rank["seconds"] for rank in ranks)
    samples = window.count * run.job.clock.global_batch
    step_ms = 1000 * np.diff(stamps)
    flops = run.facts["flops_per_sample"]
    run.journal.add(
        "speed",
        **asdict(window),
        samples=samples,
        seconds=slowest,
        samples_per_s=samples / slowest,
        step_ms={**{f"p{q}": float(np.percentile(step_ms, q)) for q in (50, 90, 99)}, "all": step_ms.tolist()},
        data_wait_fraction=max(rank["data_wait"] for rank in ranks) / slowest,
        flops_per_s=None if flops is None else 3 * flops * samples / slowest,
    )
