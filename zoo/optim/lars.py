"""LARS, layer-wise adaptive rates for SGD with momentum: You, Gitman and Ginsburg, arXiv:1708.03888.

    trust = trust_coefficient * |w| / (|g| + decay * |w| + eps), or 1 if |w| or |g| is 0
    momentum = mu * momentum + trust * (g + decay * w)
    w = w - lr * momentum

The learning rate is outside the momentum, as in SGD here. For parameters of one dimension (biases, normalizations)
trust is 1, as in MLPerf's ResNet (github.com/mlcommons/training). |.| is the L2 norm of a parameter, over all ranks if
it is sharded; with Partial FC of the rows that the update uses.
"""

from dataclasses import dataclass
from typing import ClassVar

from zoo.config.schema import Optim


@dataclass(frozen=True)
class Settings(Optim):
    """Section `optim` with LARS."""

    name: ClassVar[str] = "lars"
    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    momentum: float = 0.9
    trust_coefficient: float = 0.001
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.momentum < 1:
            raise ValueError("momentum: must be at least 0 and below 1")
        for key in ("trust_coefficient", "eps"):
            if not 0 < getattr(self, key) < float("inf"):
                raise ValueError(f"{key}: must be a finite number above 0")
