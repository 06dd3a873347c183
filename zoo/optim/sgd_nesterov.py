"""SGD with Nesterov's momentum, as Sutskever et al. (2013) and torch.optim.SGD(nesterov=True) have it.

d = g + decay * w
momentum = mu * momentum + d
w = w - lr * (d + mu * momentum)
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Doc, Range
from zoo.optim import base


@dataclass(frozen=True)
class Settings(base.Settings):
    """Section `optim` with SGD with Nesterov's momentum."""

    name: ClassVar[str] = "sgd_nesterov"
    slots: ClassVar[tuple[str, ...]] = ("momentum",)
    is_linear: ClassVar[bool] = True

    momentum: Annotated[float, Range(low=0, high=1, open_low=True, open_high=True), Doc("Momentum.")] = 0.9

    def direction(self, math, weight, gradient, slots, decay, applied) -> Any:
        factor, slope = math.number(self.momentum, weight), math.decayed(gradient, weight, decay)
        momentum = factor * slots[0] + slope
        return slope + factor * momentum, (momentum,)
