"""Softmax cross-entropy of a classifier."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from zoo.data.fields import Doc
from zoo.losses import LossName, check_class_weights, classify


@dataclass(frozen=True, kw_only=True)
class Loss(classify.Settings):
    """-sum over classes of q_k log p_k, for the softmax p of logits (N, K) and a target q.

    The target is a label (N,) or a distribution over the classes (N, K), as mixup gives it. With smoothing, the target
    is (1 - label_smoothing) q + label_smoothing / K (arXiv:1512.00567).

    With class weights w, it is -sum of w_k q_k log p_k, q smoothed: that of torch.nn.CrossEntropyLoss with weight. The
    mean is taken over samples, as there for distributions; for labels, it divides by the weights of those in a batch.
    """

    loss: LossName = "cross_entropy"
    label_smoothing: Annotated[classify.Share, Doc("Share of the target that is spread evenly over all classes.")] = 0.0
    class_weights: Annotated[
        tuple[float, ...] | Literal["balanced"] | None,
        Doc("Factor of the loss of each class; balanced: samples / (classes * samples of the class)."),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weights != "balanced":
            check_class_weights(self.class_weights)

    @cached_property
    def is_smoothed(self) -> bool:
        return self.label_smoothing > 0

    def total(self, ops: Any, logits: Any, target: Any) -> Any:
        if target.ndim == 1 and not self.is_smoothed and self.class_weights is None:
            return ops.cross_entropy(logits, target).sum()
        scores, smoothing = ops.log_softmax(logits), ops.number(self.label_smoothing, logits.dtype)
        if self.class_weights is not None:
            scores = scores * ops.vector(self.class_weights, logits)
        if target.ndim == 1:
            score = ops.gather(scores, ops.index(target)[:, None]).sum()
        else:
            score = (ops.astype(target, logits.dtype) * scores).sum()
        if not self.is_smoothed:
            return -score
        return (smoothing - 1) * score + -smoothing / logits.shape[1] * scores.sum()
