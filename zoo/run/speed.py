"""Speed mode: the time of a fixed number of updates, without evaluations and checkpoints."""

import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data.errors import UserError
from zoo.logs import timing
from zoo.logs.journal import Journal
from zoo.run.turns import BLOCK, Turns

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


def last_step(window: Window, steps: int) -> int:
    """Return the number of updates after which a speed run ends. steps: of the recipe's run.

    Raises:
        UserError: they are fewer.
    """
    if window.steps > steps:
        raise UserError(
            f"--speed: {window.steps} updates ({window.drop} dropped, {window.count} timed), but the recipe's run has "
            f"{steps}; lower --drop and --count, or raise train.epochs or train.steps"
        )
    return window.steps


def refuse_resume(journal: Journal, folder: str) -> None:
    """Raise UserError if the run in a folder, which is to be resumed, is a speed run."""
    begin = journal.last("begin")
    if begin and begin.get("speed"):
        raise UserError(f"--resume: {folder} is a run of --speed, which leaves no checkpoint to go on from; start anew")


class Clock:
    """Time of the updates of a window, in blocks; what is between two blocks does not count."""

    def __init__(self, run: "Run"):
        self._run = run
        self._start = self._waited = 0.0
        self._stamps: list[Any] = []
        self._blocks: list[list[Any]] = []
        self.seconds = self.data_wait = 0.0

    def start(self) -> None:
        """Begin a block; the device must have nothing left to do."""
        self._start, self._waited = time.perf_counter(), self._run.batches.data_wait
        self._stamps = []
        self.end_update()

    def end_update(self) -> None:
        """Note the end of an update."""
        self._stamps.append(timing.stamp(self._run.job.world.record_event))

    def stop(self) -> None:
        """End the block; the device must have finished it."""
        self.seconds += time.perf_counter() - self._start
        self.data_wait += self._run.batches.data_wait - self._waited
        self._blocks.append(self._stamps)

    def step_ms(self) -> dict[str, Any]:
        """Return quantiles of the updates, their times in milliseconds, and whose clock they are from."""
        times = [1000 * timing.elapsed(*pair) for block in self._blocks for pair in pairwise(block)]
        quantiles = {f"p{q}": float(np.percentile(times, q)) for q in (50, 90, 99)}
        return {**quantiles, "all": times, "clock": timing.clock_of(self._stamps[0])}


def measure(run: "Run", window: Window, turns_at: str | None = None) -> None:
    """Train for the updates of a window and add a `speed` event.

    The loop is that of training: it reads data, exchanges signals, and logs every train.log_every. The device is waited
    for only where the clock starts and stops, and by the logs.

    Args:
        run: a new run.
        window: its updates.
        turns_at: socket of the program that gives turns to several runs (zoo/run/turns.py); None for a single block.
    """
    trainer, lr, log_every = run.job.trainer, run.job.lr, run.config.train.log_every
    turns = Turns(turns_at, run.job.group) if turns_at else None
    clock, block = Clock(run), BLOCK if turns else window.count
    for step in run.steps():
        output = trainer.step(run.batches.take(), lr(step), step)
        done, timed = step + 1, step + 1 - window.drop  # updates; of them those that are timed
        if run.poll(done):
            run.finish()
            return
        if done < window.steps and run.due(log_every, done):
            run.log(done, output)
        if timed > 0:
            clock.end_update()
        if timed >= 0 and (timed % block == 0 or timed == window.count):
            trainer.read(output)  # waits for the device
            if timed > 0:
                clock.stop()
            if turns:
                turns.wait()  # after the last block too: the others have not finished theirs
            clock.start()
    run.log(window.steps, output)
    _log(run, window, clock)
    run.finish()


def _log(run: "Run", window: Window, clock: Clock) -> None:
    """Add the `speed` event, with the time of the rank that took longest and the updates of rank 0."""
    ranks = run.job.group.all_gather({"seconds": clock.seconds, "data_wait": clock.data_wait})
    slowest = max(rank["seconds"] for rank in ranks)
    samples = window.count * run.job.clock.global_batch
    flops = run.facts["flops_per_sample"]
    run.journal.add(
        "speed",
        **asdict(window),
        samples=samples,
        seconds=slowest,
        samples_per_s=samples / slowest,
        step_ms=clock.step_ms(),
        data_wait_fraction=max(rank["data_wait"] for rank in ranks) / slowest,
        flops_per_s=None if flops is None else 3 * flops * samples / slowest,
    )
