"""Multiplied by gamma at every milestone, as torch.optim.lr_scheduler.MultiStepLR has it."""

from zoo.config.schema import Optim
from zoo.optim.schedules import Position

KEYS = ("milestones", "gamma")


def factor(optim: Optim, at: Position) -> float:
    """Return gamma to the power of the number of milestones that are reached."""
    return optim.gamma ** sum(at.elapsed >= milestone for milestone in optim.milestones)


def describe(optim: Optim, unit: str) -> str:
    """Return a few words for --plan."""
    return f"x {optim.gamma:g} after {', '.join(f'{milestone:g}' for milestone in optim.milestones)} {unit}"
