"""zoo/losses/segment/dice.py in MindSpore."""

from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.losses.segment import dice
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.mindspore.losses.types import any_in_rows, log_softmax, one_hot, types
from zoo.trainer.plan import Plan


class Loss(nn.Cell):
    """Sum over images of the loss of logits (N, K, H, W) and labels (N, H, W), and the number of images."""

    def __init__(self, settings: dice.Loss, plan: Plan | None):
        super().__init__()
        self.equal_counts = False
        self.dtype, number = types(plan)
        self.squared = settings.squared
        self.eps: Any = number(settings.eps)

    def count(self, labels: Tensor) -> Tensor:
        return self.is_labelled(labels).sum()

    def is_labelled(self, labels: Tensor) -> Tensor:
        """Return 1 for an image with a label and else 0: (N,)."""
        return any_in_rows((labels != IGNORE_INDEX).reshape(labels.shape[0], -1).astype(self.dtype))

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        count, classes = logits.shape[0], logits.shape[1]
        valid = (labels != IGNORE_INDEX).astype(self.dtype).expand_dims(1)
        p = (ops.exp(log_softmax(logits)) * valid).reshape(count, -1)
        y = one_hot(labels.astype(mstype.int32), classes, self.dtype).reshape(count, -1)
        overlap = 2 * (p * y).sum(1)
        if self.squared:
            ratio = overlap / ((p * p).sum(1) + y.sum(1) + 2 * self.eps)
        else:
            ratio = (overlap + self.eps) / (p.sum(1) + y.sum(1) + self.eps)
        return ((1 - ratio) * self.is_labelled(labels)).sum()
