"""LAMB, layer-wise adaptive rates for AdamW: You et al., arXiv:1904.00962.

    u = mean / (1 - beta1^t) / (sqrt(square / (1 - beta2^t)) + eps) + decay * w, with the slots of zoo/optim/adamw.py
    w = w - lr * trust * u, where trust = |w| / |u|, or 1 if |w| or |u| is 0

For parameters of one dimension (biases, normalizations) trust is 1, as in the authors' code for BERT. |.| is the L2
norm of a parameter, over all ranks if it is sharded; with Partial FC of the rows that the update uses.
"""

from dataclasses import dataclass
from typing import ClassVar

from zoo.config.schema import Optim


@dataclass(frozen=True)
class Settings(Optim):
    """Section `optim` with LAMB."""

    name: ClassVar[str] = "lamb"
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("beta1", "beta2"):
            if not 0 <= getattr(self, key) < 1:
                raise ValueError(f"{key}: must be at least 0 and below 1")
        if not 0 < self.eps < float("inf"):
            raise ValueError("eps: must be a finite number above 0")
