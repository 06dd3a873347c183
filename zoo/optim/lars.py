"""LARS, layer-wise adaptive rates for SGD with momentum: You, Gitman and Ginsburg, arXiv:1708.03888.

    trust = trust_coefficient * |w| / (|g| + decay * |w| + eps), or 1 if |w| or |g| is 0
    momentum = mu * momentum + trust * (g + decay * w)
    w = w - lr * momentum

The learning rate is outside the momentum, as in SGD here. For parameters of one dimension (biases, normalizations)
trust is 1, as in MLPerf's ResNet (github.com/mlcommons/training). |.| is the L2 norm of a parameter, over all ranks if
it is sharded; with Partial FC of the rows that the update uses.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Doc, NotNegative, Positive, Range
from zoo.optim import base


@dataclass(frozen=True)
class Settings(base.Settings):
    name: ClassVar[str] = "lars"
    slots: ClassVar[tuple[str, ...]] = ("momentum",)
    uses_norms: ClassVar[bool] = True

    lr: NotNegative = 0.3  # as in SimCLR (arXiv:2002.05709)
    momentum: Annotated[float, Range(low=0, high=1, open_high=True), Doc("Momentum.")] = 0.9
    trust_coefficient: Annotated[Positive, Doc("Factor of the trust ratio.")] = 0.001
    eps: Annotated[Positive, Doc("Term that keeps the denominator above 0.")] = 1e-8

    def direction(self, math, weight, gradient, slots, decay, applied) -> Any:
        slope = math.decayed(gradient, weight, decay)
        if math.has_trust(weight):
            of_weight, of_gradient = math.norm(weight), math.norm(gradient)
            below = of_gradient + math.number(decay, weight) * of_weight + math.number(self.eps, weight)
            trust = math.number(self.trust_coefficient, weight) * of_weight / below
            slope = math.scaled(math.trust(of_weight, of_gradient, trust), slope)
        momentum = math.number(self.momentum, weight) * slots[0] + slope
        return momentum, (momentum,)
