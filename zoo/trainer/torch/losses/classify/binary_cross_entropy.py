"""zoo/losses/classify/binary_cross_entropy.py in PyTorch."""

import torch
import torch.nn.functional as F

from zoo.losses.classify import binary_cross_entropy


class Loss:
    """Sum over samples of the loss of logits (N, K) and target (N,) or (N, K)."""

    def __init__(self, settings: binary_cross_entropy.Loss):
        self.settings = settings

    def __call__(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        classes, smoothing = logits.shape[1], self.settings.label_smoothing
        if target.dim() == 1:
            target = target[:, None] == torch.arange(classes, device=target.device)
        target = (1 - smoothing) * target.to(logits.dtype) + smoothing / classes
        if self.settings.target_threshold is not None:
            target = (target > self.settings.target_threshold).to(logits.dtype)
        total = F.binary_cross_entropy_with_logits(logits, target, reduction="sum")
        return total if self.settings.sum_classes else total / classes
