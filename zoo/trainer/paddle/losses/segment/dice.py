"""zoo/losses/segment/dice.py in PaddlePaddle."""

import paddle
import paddle.nn.functional as F

from zoo.losses.segment import dice
from zoo.tasks.segment import IGNORE_INDEX


class Loss:
    """Sum over images of the loss of logits (N, K, H, W) and labels int64 (N, H, W), and the number of images."""

    equal_counts = False

    def __init__(self, settings: dice.Loss):
        self.squared, self.eps = settings.squared, settings.eps

    def count(self, labels: paddle.Tensor) -> paddle.Tensor:
        return (labels != IGNORE_INDEX).flatten(1).any(1).sum()

    def __call__(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        valid = labels != IGNORE_INDEX
        classes = paddle.arange(logits.shape[1], dtype=labels.dtype).reshape([1, -1, 1, 1])
        p = (F.softmax(logits, 1) * valid.unsqueeze(1).astype(logits.dtype)).flatten(1)
        y = (labels.unsqueeze(1) == classes).astype(logits.dtype).flatten(1)
        overlap = 2 * (p * y).sum(1)
        if self.squared:
            ratio = overlap / ((p * p).sum(1) + y.sum(1) + 2 * self.eps)
        else:
            ratio = (overlap + self.eps) / (p.sum(1) + y.sum(1) + self.eps)
        return ((1 - ratio) * valid.flatten(1).any(1).astype(ratio.dtype)).sum()
