"""zoo/losses/face/adaface.py in PyTorch."""

import math

import torch

from zoo.losses.face.adaface import EPS, MAX_NORM
from zoo.losses.face.adaface import Loss as Settings


class Loss:
    """Margin of the cosines (M,) of samples and their classes: the cosines with it, and the derivative."""

    uses_norms = True

    def __init__(self, settings: Settings):
        self.m, self.h = settings.m, settings.h

    def quality(self, norms: torch.Tensor) -> torch.Tensor:
        """Return z of the samples, for the lengths (M,) of the embeddings of all ranks."""
        norms = norms.clamp(EPS, MAX_NORM)
        return ((norms - norms.mean()) / (norms.std() + EPS) * self.h).clamp(-1, 1)

    def __call__(self, cosine: torch.Tensor, quality: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = cosine.clamp(EPS - 1, 1 - EPS)
        angle = torch.acos(inner) - self.m * quality
        clipped = angle.clamp(EPS, math.pi - EPS)
        slope = torch.sin(clipped) / ((1 - inner) * (1 + inner)).sqrt()
        has_slope = (clipped == angle) & (inner == cosine)
        return torch.cos(clipped) - self.m * (1 + quality), torch.where(has_slope, slope, 0)
