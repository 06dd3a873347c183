"""Learning rate schedules: a class each, found by its name, `optim.schedule` of a recipe.

Its function `factor` is pure; warm-up, the growth with the global batch and optim.update belong to zoo/run/schedule.py.
A schedule's keys are fields of class Optim (zoo/config/schema.py).
"""

import math
from fractions import Fraction
from typing import ClassVar, NamedTuple

from zoo.config.schema import Optim


class Position(NamedTuple):
    """Position of a run after its warm-up.

    Attributes:
        step: updates since the end of the warm-up, epochs with optim.update=epoch; 0 for the first one.
        progress: of the schedule, 0 for the first step, towards 1 (optim.min_lr_at).
        elapsed: since the start of the run: epochs where its length is given in epochs, otherwise steps.
    """

    step: int
    steps: int
    progress: float
    elapsed: Fraction | int


class Schedule:
    """A constant learning rate."""

    keys: ClassVar[tuple[str, ...]] = ()

    def factor(self, optim: Optim, at: Position) -> float:
        """Return what the learning rate after the warm-up is multiplied by."""
        return 1.0

    def describe(self, optim: Optim, unit: str) -> str:
        """Return a few words for --plan; unit: of the length of the run, epochs or steps."""
        return "constant"


class Step(Schedule):
    """Multiplied by gamma at every milestone, as torch.optim.lr_scheduler.MultiStepLR has it."""

    keys = ("milestones", "gamma")

    def factor(self, optim: Optim, at: Position) -> float:
        return optim.gamma ** sum(at.elapsed >= milestone for milestone in optim.milestones)

    def describe(self, optim: Optim, unit: str) -> str:
        return f"x {optim.gamma:g} after {', '.join(f'{milestone:g}' for milestone in optim.milestones)} {unit}"


class Exponential(Schedule):
    """Multiplied by gamma once per epoch, or per step where the run's length is given in steps, in fractions too."""

    keys = ("gamma",)

    def factor(self, optim: Optim, at: Position) -> float:
        return optim.gamma ** float(at.elapsed)

    def describe(self, optim: Optim, unit: str) -> str:
        return f"x {optim.gamma:g} per {unit.removesuffix('s')}"


class Poly(Schedule):
    """A power of the part that is left, to min_lr: PolyLR of mmsegmentation, with power 0.9 that of DeepLab."""

    keys = ("power", "min_lr", "min_lr_at")

    def factor(self, optim: Optim, at: Position) -> float:
        final = min_factor(optim)
        return final + (1 - final) * (1 - at.progress) ** optim.power

    def describe(self, optim: Optim, unit: str) -> str:
        return f"poly of power {optim.power:g} to {optim.min_lr:g}"


class Linear(Schedule):
    """A straight line to min_lr."""

    keys = ("min_lr", "min_lr_at")

    def factor(self, optim: Optim, at: Position) -> float:
        final = min_factor(optim)
        return final + (1 - final) * (1 - at.progress)

    def describe(self, optim: Optim, unit: str) -> str:
        return f"linear to {optim.min_lr:g}"


class Cosine(Schedule):
    """Half a wave of the cosine, to min_lr: Loshchilov and Hutter, arXiv:1608.03983, without restarts."""

    keys = ("min_lr", "min_lr_at")

    def factor(self, optim: Optim, at: Position) -> float:
        return half_cosine(1, min_factor(optim), at.progress)

    def describe(self, optim: Optim, unit: str) -> str:
        return f"cosine to {optim.min_lr:g}"


class OneCycle(Schedule):
    """A rise and a fall, both with cosines: torch.optim.lr_scheduler.OneCycleLR, after the warm-up."""

    keys = ("pct_start", "div_factor", "final_div_factor")

    def factor(self, optim: Optim, at: Position) -> float:
        low = 1 / optim.div_factor
        peak_at, last = optim.pct_start * at.steps - 1, at.steps - 1
        if at.step <= peak_at and peak_at > 0:
            return half_cosine(low, 1, at.step / peak_at)
        return half_cosine(1, low / optim.final_div_factor, (at.step - peak_at) / (last - peak_at))

    def describe(self, optim: Optim, unit: str) -> str:
        return f"one_cycle from 1/{optim.div_factor:g}, highest after {optim.pct_start:g} of the steps"


SCHEDULES: dict[str, Schedule] = {
    "constant": Schedule(),
    "cosine": Cosine(),
    "exponential": Exponential(),
    "linear": Linear(),
    "one_cycle": OneCycle(),
    "poly": Poly(),
    "step": Step(),
}


def min_factor(optim: Optim) -> float:
    return optim.min_lr / optim.lr if optim.min_lr else 0.0


def half_cosine(start: float, end: float, progress: float) -> float:
    """Return the value between start and end that half a wave of the cosine gives."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))
