"""Learning rate and what is due, as pure functions of the step."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from zoo.config.schema import Duration, Optim, Train
from zoo.data.errors import Option, UserError
from zoo.optim.schedules import SCHEDULES, Position


@dataclass(frozen=True)
class Clock:
    """Conversion between steps and epochs.

    An epoch is `samples` samples of the endless shuffled sequence; it need not end with a step.
    """

    samples: int  # of the training split
    global_batch: int  # samples per step, over all ranks
    steps: int  # of the whole run

    def epochs(self, done: int) -> Fraction:
        """Return the epochs seen after `done` steps."""
        return Fraction(done * self.global_batch, self.samples)

    def count(self, every: Duration, done: int) -> int:
        """Return how many whole intervals lie within the first `done` steps."""
        return math.floor((self.epochs(done) if every.unit == "epochs" else done) / every.value)

    def due(self, every: Duration, done: int) -> bool:
        """Return whether an interval, or the whole run, ended with step number `done`, counted from 1."""
        return done == self.steps or self.count(every, done) > self.count(every, done - 1)

    def epochs_done(self, every: Duration, done: int) -> Fraction:
        """Return the epochs to report: whole intervals where `every` counts epochs.

        A batch that reaches into the next epoch so does not make 1.0016 of epoch 1.
        """
        whole = self.count(every, done) * every.value
        if every.unit == "epochs" and (self.epochs(done) - whole) * self.samples < self.global_batch:
            return whole
        return self.epochs(done)


class BatchPlan(NamedTuple):
    ranks: int
    accumulate: int  # micro-batches per rank, one after the other
    batch: int  # samples per micro-batch

    @property
    def total(self) -> int:
        """Samples per update over all ranks."""
        return self.ranks * self.accumulate * self.batch


def batch_plan(train: Train, world_size: int) -> BatchPlan:
    """Divide the global batch over ranks; where train.global_batch is given, into micro-batches as large as allowed."""
    if train.global_batch is None:
        return BatchPlan(world_size, train.accumulate, train.batch)
    per_rank, remainder = divmod(train.global_batch, world_size)
    if remainder or not per_rank:
        possible = {world_size * max(per_rank, 1), world_size * (per_rank + 1)}
        raise UserError(
            f"train.global_batch: {train.global_batch} samples cannot be shared evenly by {world_size} "
            f"processes: {' or '.join(map(str, sorted(possible)))} could"
        )
    batch = next(size for size in range(min(train.batch, per_rank), 0, -1) if per_rank % size == 0)
    return BatchPlan(world_size, per_rank // batch, batch)


def clock(train: Train, samples: int, world_size: int) -> Clock:
    global_batch = batch_plan(train, world_size).total
    if train.steps is not None:
        steps = train.steps
    else:
        assert train.epochs is not None  # Train checks that one of the two is given
        steps = math.ceil(Fraction(train.epochs * samples, global_batch))
    return Clock(samples, global_batch, steps)


def base_lr(optim: Optim, global_batch: int) -> float:
    """Return the learning rate that a schedule scales: linear in the global batch, or the same for any."""
    return optim.lr if optim.base_batch is None else optim.lr * global_batch / optim.base_batch


def describe(plan: BatchPlan, optim: Optim) -> str:
    """Return batch and learning rate as a line."""
    warmup = f" after {optim.warmup} of warm-up" if optim.warmup.value else ""
    return (
        f"{plan.ranks} rank(s) x {plan.accumulate} micro-batch(es) x {plan.batch} samples = global batch "
        f"{plan.total}, learning rate {base_lr(optim, plan.total):.6g}{warmup}"
    )


def warmup_steps(optim: Optim, clock: Clock) -> int:
    """Return the number of steps of the warm-up; one that lasts epochs ends with the first step of the next epoch."""
    steps_per_unit = Fraction(clock.samples, clock.global_batch) if optim.warmup.unit == "epochs" else 1
    return math.ceil(optim.warmup.value * steps_per_unit)


def lr_schedule(optim: Optim, train: Train, clock: Clock) -> Callable[[int], float]:
    """Return the learning rate as a function of the step, counted from 0.

    It is scaled with the global batch, warmed up linearly, then follows the schedule, one of zoo/optim/schedules.py.
    Milestones and the epochs of exponential count from the start of the run; the others from the end of the warm-up.
    With optim.update epoch, the learning rate of an epoch's first step is that of the whole epoch, and the schedule
    counts epochs instead of steps.
    """
    peak = base_lr(optim, clock.global_batch)
    length, warmup = _whole_epochs(optim, train) if optim.update == "epoch" else _steps(optim, clock)
    shape = SCHEDULES[optim.schedule]
    last = length - (optim.min_lr_at == "last_step")
    offset = warmup_offset(optim)

    def position(step: int) -> int:
        return math.floor(clock.epochs(step)) if optim.update == "epoch" else step

    def factor(position: int) -> float:
        in_epochs = train.epochs and optim.update == "step"
        elapsed = clock.epochs(position) if in_epochs else position
        progress = (position - warmup) / max(last - warmup, 1)
        return shape.factor(optim, Position(position - warmup, length - warmup, progress, elapsed))

    def lr(step: int) -> float:
        if position(step) < warmup:
            start = optim.warmup_start * peak
            return start + (peak * factor(warmup) - start) * (position(step) + offset) / warmup
        return peak * factor(position(step))

    return lr


def warmup_offset(optim: Optim) -> int:
    """Return the steps or epochs by which the warm-up is ahead: where it counts epochs, the first must not be lost."""
    is_lost = bool(optim.update == "epoch" and optim.warmup.value and not optim.warmup_start)
    if is_lost and optim.warmup_offset == 0:
        raise UserError(
            "optim.warmup_offset: with 0, optim.update=epoch has a learning rate of 0 throughout the first epoch; "
            "give ",
            Option("optim.warmup_offset", 1),
            ", or an optim.warmup_start above 0",
        )
    return int(is_lost) if optim.warmup_offset is None else optim.warmup_offset


def _steps(optim: Optim, clock: Clock) -> tuple[int, int]:
    warmup = warmup_steps(optim, clock)
    if warmup >= clock.steps:
        raise UserError(
            f"optim.warmup: {optim.warmup} are {warmup} steps, but the run has only {clock.steps}; shorten it, for "
            "example with ",
            Option("optim.warmup", "0 epochs"),
            ", or raise train.epochs or train.steps",
        )
    return clock.steps, warmup


def _whole_epochs(optim: Optim, train: Train) -> tuple[int, int]:
    warmup = optim.warmup.value
    if train.epochs is None:
        raise UserError(
            "optim.update: epoch needs the length of the run in epochs; give train.epochs instead of train.steps, or "
            "set optim.update=step"
        )
    if warmup and (optim.warmup.unit != "epochs" or warmup.denominator != 1):
        raise UserError(
            f"optim.warmup: {optim.warmup} are no whole epochs, which optim.update=epoch needs; give some, such as "
            "2 epochs"
        )
    if warmup >= train.epochs:
        raise UserError(
            f"optim.warmup: {optim.warmup} of a run of {train.epochs}; shorten it, for example with ",
            Option("optim.warmup", "0 epochs"),
            ", or raise train.epochs",
        )
    return train.epochs, int(warmup)
