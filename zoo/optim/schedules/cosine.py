"""Half a wave of the cosine, to min_lr: Loshchilov and Hutter, arXiv:1608.03983, without restarts."""

from zoo.config.schema import Optim
from zoo.optim.schedules import Position, half_cosine, min_factor

KEYS = ("min_lr", "min_lr_at")


def factor(optim: Optim, at: Position) -> float:
    """Return the factor on the wave from 1 to that of min_lr."""
    return half_cosine(1, min_factor(optim), at.progress)


def describe(optim: Optim, unit: str) -> str:
    """Return a few words for --plan."""
    return f"cosine to {optim.min_lr:g}"
