"""A constant learning rate."""

from zoo.config.schema import Optim
from zoo.optim.schedules import Position

KEYS = ()


def factor(optim: Optim, at: Position) -> float:
    """Return 1."""
    return 1.0


def describe(optim: Optim, unit: str) -> str:
    """Return a few words for --plan."""
    return "constant"
