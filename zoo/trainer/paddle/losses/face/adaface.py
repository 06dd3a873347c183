"""zoo/losses/face/adaface.py in PaddlePaddle."""

import math
from collections.abc import Sequence

import paddle

from zoo.losses.face.adaface import EPS, MAX_NORM
from zoo.losses.face.adaface import Loss as Settings


class Loss:
    """Margin of the cosines (M,) of samples and their classes: the cosines with it, and the derivative."""

    uses_norms = True

    def __init__(self, settings: Settings):
        self.m, self.h, self.t_alpha = settings.m, settings.h, settings.t_alpha

    def quality(self, norms: paddle.Tensor, statistics: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Return z of the samples.

        Args:
            norms: (M,), lengths of the embeddings of all ranks.
            statistics: moving averages of mean and deviation, moved in place; empty without them.
        """
        norms = norms.clip(EPS, MAX_NORM)
        mean, std = norms.mean(), norms.std()
        if statistics:
            mean, std = (
                paddle.assign(self.t_alpha * value + (1 - self.t_alpha) * average, average)
                for average, value in zip(statistics, (mean, std))
            )
        return ((norms - mean) / (std + EPS) * self.h).clip(-1, 1)

    def __call__(self, cosine: paddle.Tensor, quality: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        inner = cosine.clip(EPS - 1, 1 - EPS)
        angle = paddle.acos(inner) - self.m * quality
        clipped = angle.clip(EPS, math.pi - EPS)
        slope = paddle.sin(clipped) / ((1 - inner) * (1 + inner)).sqrt()
        has_slope = (clipped == angle) & (inner == cosine)
        return paddle.cos(clipped) - self.m * (1 + quality), slope * has_slope.astype(slope.dtype)
