"""zoo/losses/face/combined.py in MindSpore."""

from typing import Any

from mindspore import Tensor, nn, ops

from zoo.losses.face import combined
from zoo.trainer.mindspore.losses.types import types
from zoo.trainer.plan import Plan


class Loss(nn.Cell):
    """Margin of the cosines (M,) of samples and their classes: the cosines with it, and the derivative.

    The derivative stays finite where that of the angle is not.
    """

    def __init__(self, settings: combined.Loss, plan: Plan | None):
        super().__init__()
        self.uses_norms, self.settings = False, settings
        _, number = types(plan)
        self.m1, self.m2, self.m3 = (number(margin) for margin in (settings.m1, settings.m2, settings.m3))
        self.min_sine: Any = number(combined.MIN_SINE)
        self.threshold_cosine: Any = number(combined.threshold_cosine(settings.m2))
        self.threshold_offset: Any = number(combined.threshold_offset(settings.m2))

    def construct(self, cosine: Tensor, quality: Any) -> tuple[Tensor, Tensor]:
        value, slope = cosine, ops.ones_like(cosine)
        if (self.settings.m1, self.settings.m2) != (1.0, 0.0):
            sine = ops.sqrt((1 - cosine) * (1 + cosine))
            angle = self.m1 * ops.atan2(sine, cosine) + self.m2
            value, slope = ops.cos(angle), self.m1 * ops.sin(angle) / ops.maximum(sine, self.min_sine)
        if self.settings.threshold and self.settings.m2:
            is_beyond = cosine <= self.threshold_cosine
            value = ops.select(is_beyond, cosine - self.threshold_offset, value)
            slope = ops.select(is_beyond, ops.ones_like(slope), slope)
        return value - self.m3, slope
