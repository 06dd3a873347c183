"""zoo/losses/classify/cross_entropy.py in PaddlePaddle."""

import paddle
import paddle.nn.functional as F

from zoo.losses.classify import cross_entropy


class Loss:
    """Sum over samples of the loss of logits (N, K) and target (N,) or (N, K)."""

    def __init__(self, settings: cross_entropy.Loss):
        self.smoothing = settings.label_smoothing

    def __call__(self, logits: paddle.Tensor, target: paddle.Tensor) -> paddle.Tensor:
        if not target.is_floating_point() and not (logits.dtype == paddle.float64 and self.smoothing):
            return F.cross_entropy(logits, target, reduction="sum", label_smoothing=self.smoothing)
        losses = -F.log_softmax(logits, -1)  # F.cross_entropy rounds the smoothing to fp32
        if target.is_floating_point():
            target_loss = (target.astype(losses.dtype) * losses).sum()
        else:
            target_loss = F.cross_entropy(logits, target, reduction="sum")
        return (1 - self.smoothing) * target_loss + self.smoothing / logits.shape[1] * losses.sum()
