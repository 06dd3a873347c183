"""zoo/losses/segment/lovasz.py in PyTorch."""

import torch

from zoo.losses.segment import lovasz
from zoo.tasks.segment import IGNORE_INDEX


class Loss:
    """Sum over images of the loss of logits (N, K, H, W) and labels int64 (N, H, W), and the number of images."""

    equal_counts = False

    def __init__(self, settings: lovasz.Loss):
        self.settings = settings

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        return (labels != IGNORE_INDEX).flatten(1).any(1).sum()

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        labels = labels.flatten(1)
        valid, probabilities = labels != IGNORE_INDEX, logits.softmax(1).flatten(2)
        total = torch.zeros_like(probabilities[:, 0, 0])  # of each image
        counted = torch.zeros_like(total)
        for k in range(logits.shape[1]):
            is_class = labels == k
            errors = (is_class.to(total.dtype) - probabilities[:, k]).abs() * valid
            loss = (errors * increases(errors.detach(), is_class, valid)).sum(1)
            if self.settings.class_weights is not None:
                loss = loss * self.settings.class_weights[k]
            is_counted = is_class.any(1) if self.settings.classes == "present" else valid.any(1)
            total, counted = total + loss * is_counted, counted + is_counted
        return (total / counted.clamp(min=1)).sum()


def increases(errors: torch.Tensor, is_class: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Return the derivative of the Lovász extension of 1 - IoU by the errors: (N, P), for P pixels of N images."""
    order = torch.where(valid, errors, -1).argsort(dim=1, descending=True, stable=True)
    hits = is_class.gather(1, order).to(errors.dtype)
    labelled = hits.sum(1, keepdim=True)
    intersection, union = labelled - hits.cumsum(1), labelled + (1 - hits).cumsum(1)
    jaccard = 1 - intersection / union
    return torch.empty_like(errors).scatter_(1, order, jaccard.diff(dim=1, prepend=torch.zeros_like(labelled)))
