"""AdamW, Adam with decoupled weight decay: Loshchilov and Hutter, arXiv:1711.05101, as torch.optim.AdamW has it.

    mean = beta1 * mean + (1 - beta1) * g
    square = beta2 * square + (1 - beta2) * g^2
    w = w - lr * (mean / (1 - beta1^t) / (sqrt(square / (1 - beta2^t)) + eps) + decay * w)

t counts the updates that were applied, this one included: skipped ones do not count.
"""

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Doc, NotNegative, Positive, Range
from zoo.optim import base


@dataclass(frozen=True)
class Settings(base.Settings):
    """Section `optim` with AdamW."""

    name: ClassVar[str] = "adamw"
    slots: ClassVar[tuple[str, ...]] = ("mean", "square")
    is_decoupled: ClassVar[bool] = True

    lr: NotNegative = 0.001
    beta1: Annotated[float, Range(low=0, high=1, open_high=True), Doc("Decay of the moving average of gradients.")] = (
        0.9
    )
    beta2: Annotated[
        float, Range(low=0, high=1, open_high=True), Doc("Decay of the moving average of squared gradients.")
    ] = 0.999
    eps: Annotated[Positive, Doc("Term that keeps the denominator above 0.")] = 1e-8

    @cached_property
    def rest1(self) -> float:
        return 1 - self.beta1

    @cached_property
    def rest2(self) -> float:
        return 1 - self.beta2

    @cached_property
    def log_beta1(self) -> float:
        return log(max(self.beta1, 1e-300))

    @cached_property
    def log_beta2(self) -> float:
        return log(max(self.beta2, 1e-300))

    def direction(self, math, weight, gradient, slots, decay, applied) -> Any:
        beta1, rest1 = math.number(self.beta1, weight), math.number(self.rest1, weight)
        beta2, rest2 = math.number(self.beta2, weight), math.number(self.rest2, weight)
        mean = beta1 * slots[0] + rest1 * gradient
        square = beta2 * slots[1] + rest2 * (gradient * gradient)
        corrected_mean = mean / math.bias_correction(self.log_beta1, applied, weight)
        corrected_square = square / math.bias_correction(self.log_beta2, applied, weight)
        step = corrected_mean / (math.ops.sqrt(corrected_square) + math.number(self.eps, weight))
        return math.decayed(step, weight, decay), (mean, square)
