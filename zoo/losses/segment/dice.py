"""Dice loss of images: one minus the overlap of the predicted and the labelled pixels."""

from dataclasses import dataclass
from typing import Annotated, Any

from zoo.data.fields import Doc, Positive
from zoo.losses import LossName, segment
from zoo.losses.segment import IGNORE_INDEX


@dataclass(frozen=True, kw_only=True)
class Loss(segment.Settings):
    """1 - (2 sum of p y) / (sum of p^2 + sum of y^2 + 2 eps) of each image; p the softmax of its logits, y one-hot.

    Sums are over all classes and labelled pixels of an image (arXiv:1606.04797), as DiceLoss of mmsegmentation 1.2.2
    with use_sigmoid=False, which also sums the predictions of ignored pixels. With squared=false it is
    1 - (2 sum of p y + eps) / (sum of p + sum of y + eps), its naive_dice. The mean is over images that have a label,
    so it depends neither on micro-batches nor on processes.
    """

    loss: LossName = "dice"
    squared: Annotated[bool, Doc("Sum squares in the denominator instead of values.")] = True
    eps: Annotated[Positive, Doc("Term that keeps the fraction finite.")] = 1e-3

    def total(self, ops: Any, logits: Any, labels: Any) -> Any:
        rows, dtype, eps = (logits.shape[0], -1), logits.dtype, ops.number(self.eps, logits.dtype)
        p = (ops.softmax(logits) * ops.astype(labels != IGNORE_INDEX, dtype)[:, None]).reshape(rows)
        y = ops.one_hot(labels, logits.shape[1], dtype).reshape(rows)
        overlap = 2 * (p * y).sum(1)
        if self.squared:
            ratio = overlap / ((p * p).sum(1) + y.sum(1) + 2 * eps)
        else:
            ratio = (overlap + eps) / (p.sum(1) + y.sum(1) + eps)
        return ((1 - ratio) * segment.labelled_images(ops, labels, dtype)).sum()
