"""zoo/losses/segment/lovasz.py in MindSpore."""

from typing import Any

from mindspore import Tensor, nn, ops

from zoo.losses.segment import lovasz
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.mindspore.losses.types import any_in_rows, argsort_descending, log_softmax, types
from zoo.trainer.plan import Plan


class Loss(nn.Cell):
    """Sum over images of the loss of logits (N, K, H, W) and labels (N, H, W), and the number of images."""

    def __init__(self, settings: lovasz.Loss, plan: Plan | None):
        super().__init__()
        self.equal_counts = False
        self.dtype, number = types(plan)
        self.present = settings.classes == "present"
        self.class_weights: Any = None
        if settings.class_weights is not None:
            self.class_weights = tuple(number(weight) for weight in settings.class_weights)

    def count(self, labels: Tensor) -> Tensor:
        return any_in_rows((labels != IGNORE_INDEX).reshape(labels.shape[0], -1).astype(self.dtype)).sum()

    def construct(self, logits: Tensor, labels: Tensor) -> Tensor:
        count, classes = logits.shape[0], logits.shape[1]
        labels = labels.reshape(count, -1)
        valid = (labels != IGNORE_INDEX).astype(self.dtype)
        probabilities = ops.exp(log_softmax(logits)).reshape(count, classes, -1)
        total: Any = ops.zeros((count,), self.dtype)
        counted: Any = ops.zeros((count,), self.dtype)
        for k in range(classes):
            is_class = (labels == k).astype(self.dtype)
            errors = ops.abs(is_class - probabilities[:, k]) * valid
            loss = (errors * self.increases(ops.stop_gradient(errors), is_class, valid)).sum(1)
            if self.class_weights is not None:
                loss = loss * self.class_weights[k]
            is_counted = any_in_rows(is_class if self.present else valid)
            total, counted = total + loss * is_counted, counted + is_counted
        return (total / ops.maximum(counted, ops.ones_like(counted))).sum()

    def increases(self, errors: Tensor, is_class: Tensor, valid: Tensor) -> Tensor:
        """Return the derivative of the Lovász extension of 1 - IoU by the errors: (N, P), for P pixels of N images."""
        order = argsort_descending(errors - (1 - valid))  # ignored pixels come last
        hits = ops.gather_d(is_class, 1, order)
        labelled = hits.sum(1, keepdims=True)
        intersection, union = labelled - ops.cumsum(hits, 1), labelled + ops.cumsum(1 - hits, 1)
        jaccard = ops.concat((ops.zeros_like(labelled), 1 - intersection / union), 1)
        return ops.tensor_scatter_elements(ops.zeros_like(errors), order, jaccard[:, 1:] - jaccard[:, :-1], 1)
