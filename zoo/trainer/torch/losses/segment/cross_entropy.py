"""zoo/losses/segment/cross_entropy.py in PyTorch."""

import torch
import torch.nn.functional as F

from zoo.losses.segment import cross_entropy
from zoo.tasks.segment import IGNORE_INDEX
from zoo.trainer.torch.losses.constants import constant


class Loss:
    """Sum over pixels of the loss of logits (N, K, H, W) and labels int64 (N, H, W), and what it is divided by."""

    def __init__(self, settings: cross_entropy.Loss):
        self.settings, self.equal_counts = settings, settings.average == "all"

    def count(self, labels: torch.Tensor) -> int | torch.Tensor:
        if self.equal_counts:
            return labels.numel()
        if self.settings.class_weights is None:
            return (labels != IGNORE_INDEX).sum()
        weights = constant((*self.settings.class_weights, 0.0), torch.float64, labels.device)  # 0: of ignored pixels
        return weights[labels.long().clamp(max=len(weights) - 1)].sum()

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.settings.ohem_kept is None:
            if torch.are_deterministic_algorithms_enabled():  # on a GPU, the kernel for sums adds in any order
                return self._losses(logits, labels, "none").sum()
            return self._losses(logits, labels, "sum")
        losses = self._losses(logits, labels, "none")
        ranked_by = losses.detach()
        if self.settings.ohem_threshold is not None and self.settings.label_smoothing > 0:
            # A threshold is a probability of the label, which smoothed losses do not tell.
            ranked_by = F.cross_entropy(logits.detach(), labels, ignore_index=IGNORE_INDEX, reduction="none")
        return (losses * self._hard_pixels(ranked_by, labels, self.settings.ohem_kept)).sum()

    def _losses(self, logits: torch.Tensor, labels: torch.Tensor, reduction: str) -> torch.Tensor:
        weights = None
        if self.settings.class_weights is not None:
            weights = constant(self.settings.class_weights, logits.dtype, logits.device)
        smoothing = self.settings.label_smoothing
        return F.cross_entropy(
            logits, labels, weights, ignore_index=IGNORE_INDEX, reduction=reduction, label_smoothing=smoothing
        )

    def _hard_pixels(self, losses: torch.Tensor, labels: torch.Tensor, kept_per_image: int) -> torch.Tensor:
        """Return the pixels to train on: bool (N, H, W)."""
        valid, kept, threshold = labels != IGNORE_INDEX, kept_per_image * len(losses), self.settings.ohem_threshold
        if threshold is None:
            ranked = torch.where(valid, losses, -1).flatten().sort(descending=True).values
            return valid & (losses >= ranked[min(kept, len(ranked)) - 1])
        probabilities = torch.exp(-losses)  # of the target class
        ranked = torch.where(valid, probabilities, 2).flatten().sort().values
        last = (valid.sum() - 1).clamp(0, kept)
        limit = ranked.index_select(0, last[None])  # an index in brackets would wait for the device
        return valid & (probabilities < limit.clamp(min=threshold))
