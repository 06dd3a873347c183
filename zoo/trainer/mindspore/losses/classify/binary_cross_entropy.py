"""zoo/losses/classify/binary_cross_entropy.py in MindSpore."""

from typing import Any

from mindspore import Tensor, nn

from zoo.losses.classify import binary_cross_entropy
from zoo.trainer.mindspore.losses.types import log_sigmoid, one_hot, types
from zoo.trainer.plan import Plan


class Loss(nn.Cell):
    """Sum over samples of the loss of logits (N, K) and target (N,) or (N, K)."""

    def __init__(self, settings: binary_cross_entropy.Loss, plan: Plan | None):
        super().__init__()
        self.dtype, number = types(plan)
        self.smoothing: Any = number(settings.label_smoothing)
        self.threshold = None if settings.target_threshold is None else number(settings.target_threshold)
        self.sum_classes = settings.sum_classes

    def construct(self, logits: Tensor, target: Tensor) -> Tensor:
        classes = logits.shape[1]
        if target.ndim == 1:
            target = one_hot(target, classes, self.dtype)
        target = (1 - self.smoothing) * target.astype(self.dtype) + self.smoothing / classes
        if self.threshold is not None:
            target = (target > self.threshold).astype(self.dtype)
        total = -(target * log_sigmoid(logits) + (1 - target) * log_sigmoid(-logits)).sum()
        return total if self.sum_classes else total / classes
