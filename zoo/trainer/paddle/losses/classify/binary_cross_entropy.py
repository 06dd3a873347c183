"""zoo/losses/classify/binary_cross_entropy.py in PaddlePaddle."""

import paddle
import paddle.nn.functional as F

from zoo.losses.classify import binary_cross_entropy


class Loss:
    """Sum over samples of the loss of logits (N, K) and target (N,) or (N, K)."""

    def __init__(self, settings: binary_cross_entropy.Loss):
        self.settings = settings

    def __call__(self, logits: paddle.Tensor, target: paddle.Tensor) -> paddle.Tensor:
        classes, smoothing = logits.shape[1], self.settings.label_smoothing
        if target.ndim == 1:
            target = target.unsqueeze(1) == paddle.arange(classes, dtype=target.dtype)
        target = (1 - smoothing) * target.astype(logits.dtype) + smoothing / classes
        if self.settings.target_threshold is not None:
            target = (target > self.settings.target_threshold).astype(logits.dtype)
        total = -(target * F.log_sigmoid(logits) + (1 - target) * F.log_sigmoid(-logits)).sum()
        return total if self.settings.sum_classes else total / classes
