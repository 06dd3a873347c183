"""A straight line to min_lr."""

from zoo.config.schema import Optim
from zoo.optim.schedules import Position, min_factor

KEYS = ("min_lr", "min_lr_at")


def factor(optim: Optim, at: Position) -> float:
    """Return the factor on the line from 1 to that of min_lr."""
    final = min_factor(optim)
    return final + (1 - final) * (1 - at.progress)


def describe(optim: Optim, unit: str) -> str:
    """Return a few words for --plan."""
    return f"linear to {optim.min_lr:g}"
