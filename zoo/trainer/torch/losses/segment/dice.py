"""zoo/losses/segment/dice.py in PyTorch."""

import torch

from zoo.losses.segment import dice
from zoo.tasks.segment import IGNORE_INDEX


class Loss:
    """Sum over images of the loss of logits (N, K, H, W) and labels int64 (N, H, W), and the number of images."""

    equal_counts = False

    def __init__(self, settings: dice.Loss):
        self.squared, self.eps = settings.squared, settings.eps

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        return (labels != IGNORE_INDEX).flatten(1).any(1).sum()

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        valid = labels != IGNORE_INDEX
        classes = torch.arange(logits.shape[1], device=logits.device)[:, None, None]
        p = (logits.softmax(1) * valid[:, None]).flatten(1)
        y = (labels[:, None] == classes).flatten(1).to(p.dtype)
        overlap = 2 * (p * y).sum(1)
        if self.squared:
            ratio = overlap / ((p * p).sum(1) + y.sum(1) + 2 * self.eps)
        else:
            ratio = (overlap + self.eps) / (p.sum(1) + y.sum(1) + self.eps)
        return ((1 - ratio) * valid.flatten(1).any(1)).sum()
