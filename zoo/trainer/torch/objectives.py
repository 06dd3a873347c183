"""The objectives of zoo/tasks in PyTorch.

An objective is two functions of a batch: `count`, how many items the mean is taken over, and `total`, the sum of their
losses. The trainer divides one by the other's sum over all parts and ranks, so no mean is ever taken of means.
"""
from typing import Dict

import torch
import torch.nn.functional as F

from zoo.tasks import classify


class CrossEntropy:
    """zoo.tasks.classify.CrossEntropy: logits (N, K), `label` (N,)."""

    def __init__(self, settings: classify.CrossEntropy):
        self.smoothing = settings.smoothing

    def count(self, batch: Dict[str, torch.Tensor]) -> int:
        return len(batch["label"])

    def total(self, logits: torch.Tensor, batch: Dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(logits.float(), batch["label"], reduction="sum", label_smoothing=self.smoothing)


def build(objective) -> CrossEntropy:
    """The implementation of a task's objective."""
    if isinstance(objective, classify.CrossEntropy):
        return CrossEntropy(objective)
    raise TypeError(f"no PyTorch objective for {objective}")
