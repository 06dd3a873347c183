"""SGD with momentum, as Sutskever et al. (2013) and torch.optim.SGD have it: the learning rate is outside the momentum.

momentum = mu * momentum + g + decay * w
w = w - lr * momentum
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Doc, Range
from zoo.optim import base


@dataclass(frozen=True)
class Settings(base.Settings):
    name: ClassVar[str] = "sgd"
    slots: ClassVar[tuple[str, ...]] = ("momentum",)
    is_linear: ClassVar[bool] = True

    momentum: Annotated[float, Range(low=0, high=1, open_high=True), Doc("Momentum; 0: none.")] = 0.9

    def direction(self, math, weight, gradient, slots, decay, applied) -> Any:
        momentum = math.number(self.momentum, weight) * slots[0] + math.decayed(gradient, weight, decay)
        return momentum, (momentum,)
