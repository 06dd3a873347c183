"""The objectives of zoo/tasks in PyTorch.

An objective is two functions of a batch: `count`, how many items the mean is taken over, and `total`, the sum of their
losses. The trainer divides one by the other's sum over all parts and ranks, so no mean is ever taken of means. `even`
says that every rank counts as many, so that nobody need ask. One that has parameters of its own, split over ranks,
names them in `shards`, and `begin` is called with all parts of an update before it.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from zoo.tasks import classify, face, segment
from zoo.trainer.torch.margin import Margin


class CrossEntropy:
    """zoo.tasks.classify.CrossEntropy: logits (N, K), `label` (N,)."""

    equal_counts = True

    def __init__(self, settings: classify.CrossEntropy):
        self.smoothing = settings.smoothing

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        return len(batch["label"])

    def total(self, logits: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(logits.float(), batch["label"], reduction="sum", label_smoothing=self.smoothing)


class PixelCrossEntropy:
    """zoo.tasks.segment.PixelCrossEntropy: several logits (N, K, H, W), `label` uint8 (N, H, W)."""

    def __init__(self, settings: segment.PixelCrossEntropy):
        self.settings, self.equal_counts = settings, settings.average == "all"

    def count(self, batch: dict[str, torch.Tensor]) -> int | torch.Tensor:
        return batch["label"].numel() if self.equal_counts else (batch["label"] != segment.IGNORE_INDEX).sum()

    def total(self, outputs: Sequence[torch.Tensor], batch: dict[str, torch.Tensor]) -> torch.Tensor:
        labels, (first, *others) = batch["label"].long(), outputs
        if self.settings.kept is None:
            total = self._losses(first, labels, "sum")
        else:
            losses = self._losses(first, labels, "none")
            total = (losses * self._hard(losses.detach(), labels != segment.IGNORE_INDEX)).sum()
        return total + self.settings.aux_weight * sum(self._losses(logits, labels, "sum") for logits in others)

    def _losses(self, logits: torch.Tensor, labels: torch.Tensor, reduction: str) -> torch.Tensor:
        return F.cross_entropy(logits.float(), labels, ignore_index=segment.IGNORE_INDEX, reduction=reduction)

    def _hard(self, losses: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Which pixels to train on: bool (N, H, W)."""
        kept, threshold = self.settings.kept * len(losses), self.settings.threshold
        if threshold is None:
            ranked = torch.where(valid, losses, -1).flatten().sort(descending=True).values
            return valid & (losses >= ranked[min(kept, len(ranked)) - 1])
        own = torch.exp(-losses)  # the probability of a pixel's own class
        ranked = torch.where(valid, own, 2).flatten().sort().values
        edge = ranked[(valid.sum() - 1).clamp(0, kept)]
        return valid & (own < edge.clamp(min=threshold))


def build(objective, arch=None, plan=None, world=None) -> CrossEntropy | PixelCrossEntropy | Margin:
    """The implementation of a task's objective. arch, plan, world: for one that has parameters of its own."""
    if isinstance(objective, face.Margin):
        return Margin(objective, arch, plan, world)
    if isinstance(objective, segment.PixelCrossEntropy):
        return PixelCrossEntropy(objective)
    if isinstance(objective, classify.CrossEntropy):
        return CrossEntropy(objective)
    raise TypeError(f"no PyTorch objective for {objective}")
