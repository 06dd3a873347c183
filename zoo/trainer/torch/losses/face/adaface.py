"""zoo/losses/face/adaface.py in PyTorch."""

import math
from collections.abc import Sequence

import torch

from zoo.losses.face.adaface import EPS, MAX_NORM
from zoo.losses.face.adaface import Loss as Settings


class Loss:
    """Margin of the cosines (M,) of samples and their classes: the cosines with it, and the derivative."""

    uses_norms = True

    def __init__(self, settings: Settings):
        self.m, self.h, self.t_alpha = settings.m, settings.h, settings.t_alpha

    def quality(self, norms: torch.Tensor, statistics: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return z of the samples.

        Args:
            norms: (M,), lengths of the embeddings of all ranks.
            statistics: moving averages of mean and deviation, moved in place; empty without them.
        """
        norms = norms.clamp(EPS, MAX_NORM)
        mean, std = norms.mean(), norms.std()
        if statistics:
            mean, std = (
                average.copy_(self.t_alpha * value + (1 - self.t_alpha) * average)
                for average, value in zip(statistics, (mean, std))
            )
        return ((norms - mean) / (std + EPS) * self.h).clamp(-1, 1)

    def __call__(self, cosine: torch.Tensor, quality: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = cosine.clamp(EPS - 1, 1 - EPS)
        angle = torch.acos(inner) - self.m * quality
        clipped = angle.clamp(EPS, math.pi - EPS)
        slope = torch.sin(clipped) / ((1 - inner) * (1 + inner)).sqrt()
        has_slope = (clipped == angle) & (inner == cosine)
        return torch.cos(clipped) - self.m * (1 + quality), torch.where(has_slope, slope, 0)
