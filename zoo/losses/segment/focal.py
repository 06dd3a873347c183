"""Focal loss of pixels: hard pixels count more than easy ones."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from zoo.data.fields import Doc, NotNegative, Probability
from zoo.losses import LossName, check_class_weights, segment
from zoo.losses.segment import IGNORE_INDEX


@dataclass(frozen=True, kw_only=True)
class Loss(segment.Settings):
    """-a_k (1 - t_k)^gamma log t_k, the mean over classes, for p = sigmoid(logits (N, K, H, W)) (arXiv:1708.02002).

    Of the label's class, t = p and a = alpha; of the other classes, t = 1 - p and a = 1 - alpha. This is
    sigmoid_focal_loss of torchvision 0.28, with the defaults and class weights of mmsegmentation 1.2.2, whose mean is
    that of average=all.
    """

    loss: LossName = "focal"
    gamma: Annotated[NotNegative, Doc("Exponent by which easy pixels lose weight; 0: binary cross-entropy.")] = 2.0
    alpha: Annotated[
        Probability | None, Doc("Weight of the label's class, against 1 - alpha for others; null: both have 1.")
    ] = 0.5
    average: Annotated[
        Literal["valid", "all"],
        Doc("Pixels that the mean is taken over; valid: labelled ones, all: ignored ones too, as mmsegmentation."),
    ] = "valid"
    class_weights: Annotated[tuple[float, ...] | None, Doc("Factor of each class's term, whatever the label.")] = None

    def __post_init__(self):
        super().__post_init__()
        check_class_weights(self.class_weights)

    @property
    def equal_counts(self) -> bool:
        return self.average == "all"

    def count(self, ops: Any, labels: Any, dtype: Any) -> Any:
        return segment.count_pixels(ops, labels, self.average, dtype)

    def total(self, ops: Any, logits: Any, labels: Any) -> Any:
        classes, dtype = logits.shape[1], logits.dtype
        target = ops.one_hot(labels, classes, dtype)
        signed = logits * (2 * target - 1)  # t_k = sigmoid(signed)
        losses = -ops.exp(ops.number(self.gamma, dtype) * ops.log_sigmoid(-signed)) * ops.log_sigmoid(signed)
        if self.alpha is not None:
            alpha = ops.number(self.alpha, dtype)
            losses = losses * (target * alpha + (1 - target) * (1 - alpha))
        if self.class_weights is not None:
            losses = losses * ops.vector(self.class_weights, logits).reshape((1, -1, 1, 1))
        return (losses * ops.astype(labels != IGNORE_INDEX, dtype)[:, None]).sum() / classes
