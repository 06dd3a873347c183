"""zoo/losses/segment/focal.py in PaddlePaddle."""

import paddle
import paddle.nn.functional as F

from zoo.losses.segment import focal
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.paddle.losses.constants import constant


class Loss:
    """Sum over pixels of the loss of logits (N, K, H, W) and labels int64 (N, H, W), and what it is divided by."""

    def __init__(self, settings: focal.Loss):
        self.settings, self.equal_counts = settings, settings.average == "all"

    def count(self, labels: paddle.Tensor) -> int | paddle.Tensor:
        return labels.size if self.equal_counts else (labels != IGNORE_INDEX).sum()

    def __call__(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        classes = paddle.arange(logits.shape[1], dtype=labels.dtype).reshape([1, -1, 1, 1])
        is_target = labels.unsqueeze(1) == classes
        signed = paddle.where(is_target, logits, -logits)  # p_t = sigmoid(signed)
        losses = (self.settings.gamma * F.log_sigmoid(-signed)).exp() * -F.log_sigmoid(signed)
        alpha = self.settings.alpha
        if alpha is not None:
            losses = paddle.where(is_target, alpha * losses, (1 - alpha) * losses)
        if self.settings.class_weights is not None:
            losses = losses * constant(self.settings.class_weights, logits.dtype).reshape([1, -1, 1, 1])
        valid = (labels != IGNORE_INDEX).unsqueeze(1).astype(losses.dtype)
        return (losses * valid).sum() / logits.shape[1]
