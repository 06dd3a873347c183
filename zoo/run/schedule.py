"""When things are due and how fast to learn: pure functions of the step."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from data.errors import UserError
from zoo.config.schema import Optim, Span, Train


@dataclass(frozen=True)
class Clock:
    """Steps against epochs. An epoch is `samples` samples of the endless shuffled sequence, whole steps or not."""

    samples: int
    global_batch: int
    steps: int  # of the whole run

    def epochs(self, done: int) -> Fraction:
        """Epochs seen after `done` updates."""
        return Fraction(done * self.global_batch, self.samples)

    def count(self, every: Span, done: int) -> int:
        """How many whole spans lie within the first `done` updates."""
        return math.floor((self.epochs(done) if every.unit == "epochs" else done) / every.value)

    def due(self, every: Span, done: int) -> bool:
        """Whether a span ended with update number `done` (from 1), or the run did."""
        return done == self.steps or self.count(every, done) > self.count(every, done - 1)

    def epochs_done(self, every: Span, done: int) -> Fraction:
        """Epochs to report: whole spans where `every` counts epochs, so that a batch that reaches into the next epoch
        does not blur the number."""
        whole = self.count(every, done) * every.value
        if every.unit == "epochs" and (self.epochs(done) - whole) * self.samples < self.global_batch:
            return whole
        return self.epochs(done)


class BatchPlan(NamedTuple):
    """What an update's samples are divided into."""

    ranks: int
    accumulate: int  # parts, one after the other
    batch: int  # samples per rank and part

    @property
    def total(self) -> int:
        return self.ranks * self.accumulate * self.batch


def batch_plan(train: Train, size: int) -> BatchPlan:
    """How `size` ranks share an update. With a global batch: parts as large as train.batch allows.

    Raises UserError for a global batch that cannot be divided so.
    """
    if train.global_batch is None:
        return BatchPlan(size, train.accumulate, train.batch)
    each, rest = divmod(train.global_batch, size)
    if rest or not each:
        near = {size * max(each, 1), size * (each + 1)}
        raise UserError(
            f"train.global_batch: {train.global_batch} samples cannot be shared evenly by {size} "
            f"processes: {' or '.join(map(str, sorted(near)))} could"
        )
    batch = next(size for size in range(min(train.batch, each), 0, -1) if each % size == 0)
    return BatchPlan(size, each // batch, batch)


def clock(train: Train, samples: int, size: int) -> Clock:
    """The clock of a run on `size` ranks."""
    global_batch = batch_plan(train, size).total
    steps = train.steps or math.ceil(Fraction(train.epochs * samples, global_batch))
    return Clock(samples, global_batch, steps)


def peak(optim: Optim, global_batch: int) -> float:
    """The learning rate by which a schedule goes: linear in the global batch."""
    return optim.lr * global_batch / optim.base_batch


def describe(batch_plan: BatchPlan, optim: Optim) -> str:
    """Batch and learning rate in one line."""
    warm = f" after {optim.warmup} of warm-up" if optim.warmup.value else ""
    return (
        f"{batch_plan.ranks} rank(s) x {batch_plan.accumulate} part(s) x {batch_plan.batch} samples = global batch "
        f"{batch_plan.total}, learning rate {peak(optim, batch_plan.total):.6g}{warm}"
    )


def rate(optim: Optim, train: Train, clock: Clock) -> Callable[[int], float]:
    """Learning rate by step (from 0): scaled with the global batch, warmed up linearly, then by schedule.

    Milestones count from the start of the run, cosine and poly from the end of the warm-up. Raises UserError for a
    warm-up as long as the run.
    """
    top = peak(optim, clock.global_batch)
    warmup = math.ceil(
        optim.warmup.value * (Fraction(clock.samples, clock.global_batch) if optim.warmup.unit == "epochs" else 1)
    )
    if warmup >= clock.steps:
        raise UserError(f"optim.warmup: {optim.warmup} are {warmup} steps, but the run has only {clock.steps}")

    def factor(step: int) -> float:
        if optim.schedule == "step":
            passed = clock.epochs(step) if train.epochs else step
            return optim.gamma ** sum(passed >= milestone for milestone in optim.milestones)
        done, low = (step - warmup) / (clock.steps - warmup), optim.min_lr / optim.lr if optim.min_lr else 0.0
        if optim.schedule == "cosine":
            return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * done))
        if optim.schedule == "poly":
            return low + (1 - low) * (1 - done) ** optim.power
        return 1.0

    def lr(step: int) -> float:
        if step < warmup:
            start = optim.warmup_start * top
            return start + (top * factor(warmup) - start) * step / warmup
        return top * factor(step)

    return lr
