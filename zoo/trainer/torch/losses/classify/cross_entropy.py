"""zoo/losses/classify/cross_entropy.py in PyTorch."""

import torch
import torch.nn.functional as F

from zoo.losses.classify import cross_entropy


class Loss:
    """Sum over samples of the loss of logits (N, K) and target (N,) or (N, K)."""

    def __init__(self, settings: cross_entropy.Loss):
        self.smoothing = settings.label_smoothing

    def __call__(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if target.is_floating_point():
            target = target.to(logits.dtype)
        return F.cross_entropy(logits, target, reduction="sum", label_smoothing=self.smoothing)
