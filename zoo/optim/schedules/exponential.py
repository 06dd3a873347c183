"""Multiplied by gamma once per epoch, or per step where the length of the run is given in steps, in fractions too."""

from zoo.config.schema import Optim
from zoo.optim.schedules import Position

KEYS = ("gamma",)


def factor(optim: Optim, at: Position) -> float:
    """Return gamma to the power of the epochs or steps that have passed."""
    return optim.gamma ** float(at.elapsed)


def describe(optim: Optim, unit: str) -> str:
    """Return a few words for --plan."""
    return f"x {optim.gamma:g} per {unit.removesuffix('s')}"
