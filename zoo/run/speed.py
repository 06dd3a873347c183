"""Speed mode: the time of a fixed number of updates, without evaluations and checkpoints."""

import socket
import time
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.distributed.group import Group
from zoo.logs import timing
from zoo.run.request import Window
from zoo.run.session import Run

ASK, GIVE = b"?", b"!"
BLOCK = 10  # updates of a turn


class Clock:
    """Time of the updates of a window, in blocks; what is between two blocks does not count."""

    def __init__(self, run: Run):
        self._run = run
        self._start = self._waited = 0.0
        self._stamps: list[Any] = []
        self._blocks: list[list[Any]] = []
        self.seconds = self.data_wait = 0.0

    def start(self) -> None:
        """Begin a block; the device must have nothing left to do."""
        self._start, self._waited = time.perf_counter(), self._run.loop.batches.data_wait
        self._stamps = []
        self.end_update()

    def end_update(self) -> None:
        self._stamps.append(timing.stamp(self._run.job.world.record_event))

    def stop(self) -> None:
        """End the block; the device must have finished it."""
        self.seconds += time.perf_counter() - self._start
        self.data_wait += self._run.loop.batches.data_wait - self._waited
        self._blocks.append(self._stamps)

    def step_ms(self) -> dict[str, Any]:
        """Return quantiles of the updates, their times in milliseconds, and whose clock they are from."""
        times = [1000 * timing.elapsed(*pair) for block in self._blocks for pair in pairwise(block)]
        quantiles = {f"p{q}": float(np.percentile(times, q)) for q in (50, 90, 99)}
        return {**quantiles, "all": times, "clock": timing.clock_of(self._stamps[0])}


class Turns:
    """This run's side of turns with others: each computes while the others wait, in blocks of BLOCK updates.

    The program that gives the turns (zoo/bench/matrix/process.py) listens at a Unix socket. A run asks for one, waits
    for it, times a block, and ends its turn by asking for the next one. What makes a machine faster or slower for
    seconds so acts on all of them alike.

    Args:
        group: all ranks; the first one asks.
    """

    def __init__(self, path: str, group: Group):
        self._group, self._path = group, path
        self._socket: socket.socket | None = None
        if group.rank == 0:
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.connect(path)
            except OSError as error:
                raise UserError(f"--turns {path}: nobody listens there ({error.strerror})") from None

    def wait(self) -> None:
        """End the turn, if there was one, and wait for the next. A collective call."""
        self._group.set_status("waiting for a turn")
        if self._socket:
            try:
                self._socket.sendall(ASK)
                answer = self._socket.recv(1)
            except OSError:
                answer = b""
            if answer != GIVE:
                raise UserError(f"--turns {self._path}: the program that gives the turns has ended")
        self._group.all_gather(None)


def measure(run: Run, window: Window, turns_at: str | None = None) -> None:
    """Train for the updates of a window and add a `speed` event.

    The loop is that of training: it reads data, exchanges signals, and logs every train.log_every. The device is waited
    for only where the clock starts and stops, and by the logs.

    Args:
        turns_at: socket of the program that gives turns to several runs; None for a single block.
    """
    trainer, lr, log_every = run.job.trainer, run.job.lr, run.config.train.log_every
    turns = Turns(turns_at, run.job.group) if turns_at else None
    clock, block = Clock(run), BLOCK if turns else window.count
    for step in run.steps():
        output = trainer.step(run.loop.batches.take(run.job.plan.accumulate), lr(step), step)
        done, timed = step + 1, step + 1 - window.drop  # updates; of them those that are timed
        if run.poll(done, output):
            run.finish()
            return
        if done < window.steps and run.due(log_every, done):
            run.log(done)
        if timed > 0:
            clock.end_update()
        if timed >= 0 and (timed % block == 0 or timed == window.count):
            trainer.read(output)  # waits for the device
            if timed > 0:
                clock.stop()
            if turns:
                turns.wait()  # after the last block too: the others have not finished theirs
            clock.start()
    run.log(window.steps)
    _log(run, window, clock)
    run.finish()


def _log(run: Run, window: Window, clock: Clock) -> None:
    ranks = run.job.group.all_gather({"seconds": clock.seconds, "data_wait": clock.data_wait})
    slowest = max(rank["seconds"] for rank in ranks)
    samples = window.count * run.job.clock.global_batch
    flops = run.described["flops_per_sample"]
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
