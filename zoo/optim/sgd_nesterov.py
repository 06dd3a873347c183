"""SGD with Nesterov's momentum, as Sutskever et al. (2013) and torch.optim.SGD(nesterov=True) have it.

d = g + decay * w
momentum = mu * momentum + d
w = w - lr * (d + mu * momentum)
"""

from dataclasses import dataclass
from typing import ClassVar

from zoo.config.schema import Optim


@dataclass(frozen=True)
class Settings(Optim):
    """Section `optim` with SGD with Nesterov's momentum."""

    name: ClassVar[str] = "sgd_nesterov"
    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.momentum < 1:
            raise ValueError("momentum: must be above 0 and below 1")
