"""zoo/losses/segment/lovasz.py in PaddlePaddle."""

import paddle
import paddle.nn.functional as F

from zoo.losses.segment import lovasz
from zoo.tasks.segment import IGNORE_INDEX


class Loss:
    """Sum over images of the loss of logits (N, K, H, W) and labels int64 (N, H, W), and the number of images."""

    equal_counts = False

    def __init__(self, settings: lovasz.Loss):
        self.settings = settings

    def count(self, labels: paddle.Tensor) -> paddle.Tensor:
        return (labels != IGNORE_INDEX).flatten(1).any(1).sum()

    def __call__(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        labels, dtype = labels.flatten(1), logits.dtype
        valid, probabilities = labels != IGNORE_INDEX, F.softmax(logits, 1).flatten(2)
        total = paddle.zeros([len(labels)], dtype)  # of each image
        counted = paddle.zeros([len(labels)], dtype)
        for k in range(logits.shape[1]):
            is_class = labels == k
            errors = (is_class.astype(dtype) - probabilities[:, k]).abs() * valid.astype(dtype)
            loss = (errors * increases(errors.detach(), is_class, valid)).sum(1)
            if self.settings.class_weights is not None:
                loss = loss * self.settings.class_weights[k]
            is_counted = (is_class if self.settings.classes == "present" else valid).any(1).astype(dtype)
            total, counted = total + loss * is_counted, counted + is_counted
        return (total / counted.clip(min=1)).sum()


@paddle.no_grad()
def increases(errors: paddle.Tensor, is_class: paddle.Tensor, valid: paddle.Tensor) -> paddle.Tensor:
    """Return the derivative of the Lovász extension of 1 - IoU by the errors: (N, P), for P pixels of N images."""
    order = paddle.where(valid, errors, paddle.full_like(errors, -1)).argsort(1, descending=True)
    hits = paddle.take_along_axis(is_class.astype(errors.dtype), order, 1)
    labelled = hits.sum(1, keepdim=True)
    intersection, union = labelled - hits.cumsum(1), labelled + (1 - hits).cumsum(1)
    jaccard = paddle.concat([paddle.zeros_like(labelled), 1 - intersection / union], 1)
    return paddle.put_along_axis(paddle.zeros_like(errors), order, jaccard[:, 1:] - jaccard[:, :-1], 1)
