"""A rise and a fall, both with cosines: torch.optim.lr_scheduler.OneCycleLR, after the warm-up."""

from dataclasses import dataclass
from typing import Any

from zoo.optim.schedules import Position, half_cosine

KEYS = ()


@dataclass(frozen=True)
class Keys:
    """Keys of section `optim` with this schedule, with PyTorch's names and defaults.

    Attributes:
        pct_start: the part of the steps in which the learning rate rises, from lr / div_factor.
        final_div_factor: it ends at lr / (div_factor * final_div_factor).
    """

    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4

    def __post_init__(self) -> None:
        if not 0 < self.pct_start < 1:
            raise ValueError("pct_start: must lie between 0 and 1")
        for key in ("div_factor", "final_div_factor"):
            if not 1 <= getattr(self, key) < float("inf"):
                raise ValueError(f"{key}: must be a finite number, not below 1")


def factor(optim: Any, at: Position) -> float:
    """Return the factor of a step."""
    low = 1 / optim.div_factor
    peak_at, last = optim.pct_start * at.steps - 1, at.steps - 1
    if at.step <= peak_at and peak_at > 0:
        return half_cosine(low, 1, at.step / peak_at)
    return half_cosine(1, low / optim.final_div_factor, (at.step - peak_at) / (last - peak_at))


def describe(optim: Any, unit: str) -> str:
    """Return a few words for --plan."""
    return f"one_cycle from 1/{optim.div_factor:g}, highest after {optim.pct_start:g} of the steps"
