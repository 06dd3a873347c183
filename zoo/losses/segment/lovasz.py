"""Lovász-Softmax loss of images: a surrogate of the mean IoU."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from zoo.data.fields import Doc
from zoo.losses import LossName, check_class_weights, segment
from zoo.losses.segment import IGNORE_INDEX


@dataclass(frozen=True, kw_only=True)
class Loss(segment.Settings):
    """Mean over classes of the Lovász extension of the Jaccard loss of each image (arXiv:1705.08790).

    With p the softmax of the logits, the errors |y - p| of a class are sorted in descending order; each is multiplied
    by the increase of 1 - IoU when its pixel joins the wrong ones. It is LovaszLoss of mmsegmentation 1.2.2 with
    per_image=True, but for its mean, which is over images that have a label, so that it depends neither on
    micro-batches nor on processes. Where errors are equal, the derivative is that of any order.
    """

    loss: LossName = "lovasz"
    classes: Annotated[
        Literal["present", "all"], Doc("Classes that the mean is taken over; present: those of an image's labels.")
    ] = "present"
    class_weights: Annotated[tuple[float, ...] | None, Doc("Factor of each class's term.")] = None

    def __post_init__(self):
        super().__post_init__()
        check_class_weights(self.class_weights)

    def total(self, ops: Any, logits: Any, labels: Any) -> Any:
        count, classes, dtype = logits.shape[0], logits.shape[1], logits.dtype
        labels = labels.reshape((count, -1))
        valid = ops.astype(labels != IGNORE_INDEX, dtype)
        probabilities = ops.softmax(logits).reshape((count, classes, -1))
        total = counted = ops.zeros_like(probabilities[:, 0, 0])  # of each image
        for k in range(classes):
            is_class = ops.astype(labels == k, dtype)
            errors = ops.abs(is_class - probabilities[:, k]) * valid
            loss = (errors * increases(ops, ops.stop_gradient(errors), is_class, valid)).sum(1)
            if self.class_weights is not None:
                loss = loss * ops.number(self.class_weights[k], dtype)
            is_counted = segment.any_in_rows(ops, is_class if self.classes == "present" else valid)
            total, counted = total + loss * is_counted, counted + is_counted
        return (total / ops.maximum(counted, ops.ones_like(counted))).sum()


def increases(ops: Any, errors: Any, is_class: Any, valid: Any) -> Any:
    """Return the derivative of the Lovász extension of 1 - IoU by the errors: (N, P), for P pixels of N images."""
    order = ops.argsort_descending(errors - (1 - valid))  # ignored pixels come last
    hits = ops.gather(is_class, order)
    labelled = hits.sum(1)[:, None]
    intersection, union = labelled - ops.cumsum(hits), labelled + ops.cumsum(1 - hits)
    jaccard = ops.concat((ops.zeros_like(labelled), 1 - intersection / union), 1)
    return ops.scatter(ops.zeros_like(errors), order, jaccard[:, 1:] - jaccard[:, :-1])
