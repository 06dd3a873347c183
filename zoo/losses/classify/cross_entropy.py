"""Softmax cross-entropy of a classifier."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zoo.losses import classify


@dataclass(frozen=True, kw_only=True)
class Loss(classify.Settings):
    """-sum over classes of q_k log p_k, for the softmax p of logits (N, K) and a target q.

    The target is a label (N,) or a distribution over the classes (N, K), as mixup gives it. With smoothing, the target
    is (1 - label_smoothing) q + label_smoothing / K (arXiv:1512.00567).
    """

    loss: str = "cross_entropy"
    label_smoothing: classify.Share = 0.0  # share of the target that is spread evenly over all classes

    @cached_property
    def is_smoothed(self) -> bool:
        return self.label_smoothing > 0

    def total(self, ops: Any, logits: Any, target: Any) -> Any:
        if target.ndim == 1 and not self.is_smoothed:
            return ops.cross_entropy(logits, target).sum()
        scores, smoothing = ops.log_softmax(logits), ops.number(self.label_smoothing, logits.dtype)
        if target.ndim == 1:
            target_loss = -ops.gather(scores, ops.index(target)[:, None]).sum()
        else:
            target_loss = -(ops.cast(target, logits.dtype) * scores).sum()
        if not self.is_smoothed:
            return target_loss
        return (1 - smoothing) * target_loss - smoothing / logits.shape[1] * scores.sum()
