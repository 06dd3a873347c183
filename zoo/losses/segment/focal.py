"""Focal loss of pixels: hard pixels count more than easy ones."""

from dataclasses import dataclass
from typing import Literal

from zoo.losses.weights import check_class_weights


@dataclass(frozen=True)
class Loss:
    """-a_k (1 - t_k)^gamma log t_k, the mean over classes, for p = sigmoid(logits (N, K, H, W)) (arXiv:1708.02002).

    Of the label's class, t = p and a = alpha; of the other classes, t = 1 - p and a = 1 - alpha. This is
    sigmoid_focal_loss of torchvision 0.28, with the defaults and class weights of mmsegmentation 1.2.2, whose mean is
    that of average=all.
    """

    gamma: float = 2.0  # exponent by which easy pixels lose weight
    alpha: float | None = 0.5  # weight of the label's class, against 1 - alpha for others; null: both have 1
    average: Literal["valid", "all"] = "valid"  # the mean over labelled pixels, or ignored ones too, as in mmseg
    class_weights: tuple[float, ...] | None = None  # factor of each class's term, whatever the label

    def __post_init__(self):
        check_class_weights(self.class_weights)
        if not 0 <= self.gamma < float("inf"):
            raise ValueError("gamma: must be a finite number, not below 0 (0 is binary cross-entropy)")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ValueError("alpha: must lie in [0, 1], or be null for equal weights")
