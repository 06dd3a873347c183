"""When things are due and how fast to learn: pure functions of the step."""
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Callable

from data.errors import UserError
from zoo.trainer.recipe import Optim, Span, Train


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


def clock(train: Train, samples: int, size: int) -> Clock:
    """The clock of a run on `size` ranks."""
    global_batch = train.batch * train.accumulate * size
    steps = train.steps or math.ceil(Fraction(train.epochs * samples, global_batch))
    return Clock(samples, global_batch, steps)


def rate(optim: Optim, train: Train, clock: Clock) -> Callable[[int], float]:
    """Learning rate by step (from 0): scaled with the global batch, warmed up linearly, then by schedule.

    Milestones count from the start of the run, cosine and poly from the end of the warm-up. Raises UserError for a
    warm-up as long as the run.
    """
    peak = optim.lr * clock.global_batch / optim.base_batch
    warmup = math.ceil(optim.warmup.value * (Fraction(clock.samples, clock.global_batch)
                                             if optim.warmup.unit == "epochs" else 1))
    if warmup >= clock.steps:
        raise UserError(f"optim.warmup: {optim.warmup} are {warmup} steps, but the run has only {clock.steps}")

    def factor(step: int) -> float:
        if optim.schedule == "step":
            passed = clock.epochs(step) if train.epochs else step
            return optim.gamma ** sum(passed >= milestone for milestone in optim.milestones)
        done = (step - warmup) / (clock.steps - warmup)
        if optim.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * done))
        if optim.schedule == "poly":
            return (1 - done) ** optim.power
        return 1.0

    def lr(step: int) -> float:
        if step < warmup:
            start = optim.warmup_start * peak
            return start + (peak * factor(warmup) - start) * step / warmup
        return peak * factor(step)
    return lr
