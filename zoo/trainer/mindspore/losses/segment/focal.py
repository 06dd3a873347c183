"""zoo/losses/segment/focal.py in MindSpore."""

from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.losses.segment import focal
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.mindspore.losses.types import log_sigmoid, one_hot, types
from zoo.trainer.plan import Plan


class Loss(nn.Cell):
    """Sum over pixels of the loss of logits (N, K, H, W) and labels (N, H, W), and what it is divided by."""

    def __init__(self, settings: focal.Loss, plan: Plan | None):
        super().__init__()
        self.dtype, number = types(plan)
        self.equal_counts = settings.average == "all"
        self.gamma: Any = number(settings.gamma)
        self.alpha = None if settings.alpha is None else number(settings.alpha)
        self.class_weights = None
        if settings.class_weights is not None:
            self.class_weights = Tensor(settings.class_weights, self.dtype).reshape(1, -1, 1, 1)

    def count(self, labels: Tensor) -> int | Tensor:
        return labels.size if self.equal_counts else (labels != IGNORE_INDEX).astype(self.dtype).sum()

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        target = one_hot(labels.astype(mstype.int32), logits.shape[1], self.dtype)
        signed = logits * (2 * target - 1)  # p_t = sigmoid(signed)
        losses = -ops.exp(self.gamma * log_sigmoid(-signed)) * log_sigmoid(signed)
        if self.alpha is not None:
            losses = losses * (target * self.alpha + (1 - target) * (1 - self.alpha))
        if self.class_weights is not None:
            losses = losses * self.class_weights
        valid = (labels != IGNORE_INDEX).astype(self.dtype)
        return (losses * valid.expand_dims(1)).sum() / logits.shape[1]
