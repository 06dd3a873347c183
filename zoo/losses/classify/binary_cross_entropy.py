"""Binary cross-entropy of a classifier: each class is a yes-or-no question of its own."""

from dataclasses import dataclass
from typing import Annotated, Any

from zoo.data.fields import Doc
from zoo.losses import LossName, classify


@dataclass(frozen=True, kw_only=True)
class Loss(classify.Settings):
    """-sum over classes of q_k log p_k + (1 - q_k) log(1 - p_k), for p = sigmoid(logits (N, K)) and a target q.

    The target is a label (N,) or a distribution over the classes (N, K), as mixup gives it; smoothed as that of the
    cross-entropy, then cut at target_threshold. Of ResNet Strikes Back (arXiv:2110.00476), as BinaryCrossEntropy of
    timm 1.0, which smooths labels but not distributions.
    """

    loss: LossName = "binary_cross_entropy"
    label_smoothing: Annotated[classify.Share, Doc("Share of the target that is spread evenly over all classes.")] = 0.0
    target_threshold: Annotated[
        classify.Share | None,
        Doc("Make targets above this 1 and others 0, as arXiv:2110.00476 with 0.2; null: keep them."),
    ] = None
    sum_classes: Annotated[bool, Doc("Add the classes up instead of taking their mean.")] = False

    def total(self, ops: Any, logits: Any, target: Any) -> Any:
        classes, dtype = logits.shape[1], logits.dtype
        smoothing = ops.number(self.label_smoothing, dtype)
        target = ops.one_hot(target, classes, dtype) if target.ndim == 1 else ops.astype(target, dtype)
        target = (1 - smoothing) * target + smoothing / classes
        if self.target_threshold is not None:
            target = ops.astype(target > ops.number(self.target_threshold, dtype), dtype)
        total = -(target * ops.log_sigmoid(logits) + (1 - target) * ops.log_sigmoid(-logits)).sum()
        return total if self.sum_classes else total / classes
