"""The objectives of zoo/tasks in PyTorch; see Objective in zoo/trainer/protocol.py."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from zoo.tasks import classify, face, segment
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import Objective
from zoo.trainer.sharding import NoShards
from zoo.trainer.torch.margin import Margin
from zoo.trainer.torch.world import World

Batch = dict[str, torch.Tensor]


class CrossEntropy(NoShards):
    """zoo.tasks.classify.CrossEntropy for logits (N, K) and `label` (N,)."""

    equal_counts = True

    def __init__(self, settings: classify.CrossEntropy, *_: Any):
        self.smoothing = settings.smoothing

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def total(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(widen(output), batch["label"], reduction="sum", label_smoothing=self.smoothing)


class PixelCrossEntropy(NoShards):
    """zoo.tasks.segment.PixelCrossEntropy for one or more logits (N, K, H, W) and `label` uint8 (N, H, W)."""

    def __init__(self, settings: segment.PixelCrossEntropy, *_: Any):
        self.settings, self.equal_counts = settings, settings.average == "all"

    def count(self, batch: Batch) -> int | torch.Tensor:
        if self.equal_counts:
            return batch["label"].numel()
        return (batch["label"] != segment.IGNORE_INDEX).sum()

    def total(self, output: Sequence[torch.Tensor], batch: Batch) -> torch.Tensor:
        labels, (logits, *auxiliary_logits) = batch["label"].long(), output
        if self.settings.kept is None:
            total = self._losses(logits, labels, "sum")
        else:
            losses = self._losses(logits, labels, "none")
            total = (losses * self._hard_pixels(losses.detach(), labels, self.settings.kept)).sum()
        return total + self.settings.aux_weight * sum(self._losses(aux, labels, "sum") for aux in auxiliary_logits)

    def _losses(self, logits: torch.Tensor, labels: torch.Tensor, reduction: str) -> torch.Tensor:
        return F.cross_entropy(widen(logits), labels, ignore_index=segment.IGNORE_INDEX, reduction=reduction)

    def _hard_pixels(self, losses: torch.Tensor, labels: torch.Tensor, kept_per_image: int) -> torch.Tensor:
        """Return the pixels to train on: bool (N, H, W)."""
        valid, kept, threshold = labels != segment.IGNORE_INDEX, kept_per_image * len(losses), self.settings.threshold
        if threshold is None:
            ranked = torch.where(valid, losses, -1).flatten().sort(descending=True).values
            return valid & (losses >= ranked[min(kept, len(ranked)) - 1])
        probabilities = torch.exp(-losses)  # of the target class
        ranked = torch.where(valid, probabilities, 2).flatten().sort().values
        last = (valid.sum() - 1).clamp(0, kept)
        limit = ranked.index_select(0, last[None])  # an index in brackets would wait for the device
        return valid & (probabilities < limit.clamp(min=threshold))


def widen(x: torch.Tensor) -> torch.Tensor:
    """Return x in fp32, or in fp64 if it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


IMPLEMENTATIONS: dict[type, type] = {
    classify.CrossEntropy: CrossEntropy,
    segment.PixelCrossEntropy: PixelCrossEntropy,
    face.Margin: Margin,
}


def build(settings: Any, arch: Any = None, plan: Plan | None = None, world: World | None = None) -> Objective:
    """Return the implementation of a task's objective.

    Args:
        settings: specification of the objective, from zoo/tasks.
        arch, plan, world: needed by an objective with parameters of its own.
    """
    return IMPLEMENTATIONS[type(settings)](settings, arch, plan, world)
