"""A power of the part that is left, to min_lr: PolyLR of mmsegmentation, with power 0.9 that of DeepLab."""

from zoo.config.schema import Optim
from zoo.optim.schedules import Position, min_factor

KEYS = ("power", "min_lr", "min_lr_at")


def factor(optim: Optim, at: Position) -> float:
    """Return the factor on the curve from 1 to that of min_lr."""
    final = min_factor(optim)
    return final + (1 - final) * (1 - at.progress) ** optim.power


def describe(optim: Optim, unit: str) -> str:
    """Return a few words for --plan."""
    return f"poly of power {optim.power:g} to {optim.min_lr:g}"
