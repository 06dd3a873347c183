"""AdamW, Adam with decoupled weight decay: Loshchilov and Hutter, arXiv:1711.05101, as torch.optim.AdamW has it.

    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g^2
    w = w - lr * (mean / (1 - beta1^t) / (sqrt(square / (1 - beta2^t)) + eps) + decay * w)

t counts the updates that were applied, this one included: skipped ones do not count.
"""

from dataclasses import dataclass
from typing import ClassVar

from zoo.config.schema import Optim


@dataclass(frozen=True)
class Settings(Optim):
    """Section `optim` with AdamW."""

    name: ClassVar[str] = "adamw"
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("beta1", "beta2"):
            if not 0 <= getattr(self, key) < 1:
                raise ValueError(f"{key}: must be at least 0 and below 1")
        if not 0 < self.eps < float("inf"):
            raise ValueError("eps: must be a finite number above 0")
