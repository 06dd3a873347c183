"""zoo/losses/classify/cross_entropy.py in MindSpore."""

from typing import Any

from mindspore import Tensor, nn, ops

from zoo.losses.classify import cross_entropy
from zoo.trainer.mindspore.losses.types import log_softmax, types
from zoo.trainer.plan import Plan


class Loss(nn.Cell):
    """Sum over samples of the loss of logits (N, K) and target (N,) or (N, K)."""

    def __init__(self, settings: cross_entropy.Loss, plan: Plan | None):
        super().__init__()
        self.is_smoothed = settings.label_smoothing > 0
        self.dtype, number = types(plan)
        self.smoothing: Any = number(settings.label_smoothing)

    def construct(self, logits: Tensor, target: Tensor) -> Tensor:
        losses = -log_softmax(logits)
        if target.ndim == 1:
            target_loss = ops.gather_d(losses, 1, target.reshape(-1, 1)).sum()
        else:
            target_loss = (losses * target.astype(self.dtype)).sum()
        if not self.is_smoothed:
            return target_loss
        return (1 - self.smoothing) * target_loss + self.smoothing / logits.shape[1] * losses.sum()
