"""The objectives of zoo/tasks in PaddlePaddle.

An objective is two functions of a batch: `count`, how many items the mean is taken over, and `total`, the sum of their
losses. The trainer divides one by the other's sum over all parts and ranks, so no mean is ever taken of means.
"""
from typing import Dict

import paddle
import paddle.nn.functional as F

from zoo.tasks import classify


class CrossEntropy:
    """zoo.tasks.classify.CrossEntropy: logits (N, K), `label` (N,)."""

    def __init__(self, settings: classify.CrossEntropy):
        self.smoothing = settings.smoothing

    def count(self, batch: Dict[str, paddle.Tensor]) -> int:
        return len(batch["label"])

    def total(self, logits: paddle.Tensor, batch: Dict[str, paddle.Tensor]) -> paddle.Tensor:
        return F.cross_entropy(logits.astype("float32"), batch["label"], reduction="sum",
                               label_smoothing=self.smoothing)


def build(objective) -> CrossEntropy:
    """The implementation of a task's objective."""
    if isinstance(objective, classify.CrossEntropy):
        return CrossEntropy(objective)
    raise TypeError(f"no Paddle objective for {objective}")
