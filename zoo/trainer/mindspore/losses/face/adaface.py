"""zoo/losses/face/adaface.py in MindSpore."""

import math
from typing import Any

from mindspore import Parameter, Tensor, nn, ops

from zoo.losses.face.adaface import EPS, MAX_NORM
from zoo.losses.face.adaface import Loss as Settings
from zoo.trainer.mindspore.losses.types import types
from zoo.trainer.plan import Plan


class Loss(nn.Cell):
    """Margin of the cosines (M,) of samples and their classes: the cosines with it, and the derivative."""

    def __init__(self, settings: Settings, plan: Plan | None):
        super().__init__()
        self.uses_norms = True
        self.dtype, number = types(plan)
        self.m, self.h, self.eps, self.max_norm = (number(x) for x in (settings.m, settings.h, EPS, MAX_NORM))
        self.new_weight, self.old_weight = number(settings.t_alpha), number(1 - settings.t_alpha)
        self.max_cosine: Any = number(1 - EPS)
        self.max_angle: Any = number(math.pi - EPS)

    def quality(self, norms: Tensor, statistics: tuple[Parameter, ...]) -> Tensor:
        """Return z of the samples.

        Args:
            norms: (M,), lengths of the embeddings of all ranks.
            statistics: moving averages of mean and deviation, moved in place; empty without them.
        """
        norms = ops.minimum(ops.maximum(norms, self.eps), self.max_norm)
        mean = norms.sum() / norms.shape[0]
        std = ops.sqrt(ops.square(norms - mean).sum() / (norms.shape[0] - 1))
        if len(statistics) > 0:
            mean = self.new_weight * mean + self.old_weight * statistics[0]
            std = self.new_weight * std + self.old_weight * statistics[1]
            ops.assign(statistics[0], mean)
            ops.assign(statistics[1], std)
        return ops.clamp((norms - mean) / (std + self.eps) * self.h, -1.0, 1.0)

    def construct(self, cosine: Tensor, quality: Any) -> tuple[Tensor, Tensor]:
        inner = ops.minimum(ops.maximum(cosine, -self.max_cosine), self.max_cosine)
        sine = ops.sqrt((1 - inner) * (1 + inner))
        angle = ops.atan2(sine, inner) - self.m * quality
        clipped = ops.minimum(ops.maximum(angle, self.eps), self.max_angle)
        has_slope = ops.logical_and(clipped == angle, inner == cosine)
        slope = ops.sin(clipped) / sine * has_slope.astype(self.dtype)
        return ops.cos(clipped) - self.m * (1 + quality), slope
