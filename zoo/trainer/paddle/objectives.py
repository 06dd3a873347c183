"""The objectives of zoo/tasks in PaddlePaddle; see Objective in zoo/trainer/protocol.py."""

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F

from zoo.tasks import classify, face, segment
from zoo.trainer.paddle.margin import Margin
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import Objective
from zoo.trainer.sharding import NoShards

Batch = dict[str, paddle.Tensor]


class CrossEntropy(NoShards):
    """zoo.tasks.classify.CrossEntropy for logits (N, K) and `label` (N,)."""

    equal_counts = True

    def __init__(self, settings: classify.CrossEntropy, *_: Any):
        self.smoothing = settings.smoothing

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def total(self, output: paddle.Tensor, batch: Batch) -> paddle.Tensor:
        logits = widen(output)
        if logits.dtype == paddle.float64 and self.smoothing:
            return self._smoothed(logits, batch["label"])
        return F.cross_entropy(logits, batch["label"], reduction="sum", label_smoothing=self.smoothing)

    def _smoothed(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the total in fp64: F.cross_entropy rounds the smoothing to fp32."""
        losses = -F.log_softmax(logits, -1)
        target_loss = F.cross_entropy(logits, labels, reduction="sum")
        return (1 - self.smoothing) * target_loss + self.smoothing / logits.shape[1] * losses.sum()


class PixelCrossEntropy(NoShards):
    """zoo.tasks.segment.PixelCrossEntropy for one or more logits (N, K, H, W) and `label` uint8 (N, H, W)."""

    def __init__(self, settings: segment.PixelCrossEntropy, *_: Any):
        self.settings, self.equal_counts = settings, settings.average == "all"

    def count(self, batch: Batch) -> int | paddle.Tensor:
        if self.equal_counts:
            return batch["label"].size
        return (batch["label"] != segment.IGNORE_INDEX).sum()

    def total(self, output: Sequence[paddle.Tensor], batch: Batch) -> paddle.Tensor:
        labels, (logits, *auxiliary_logits) = batch["label"].astype("int64"), output
        losses = self._losses(logits, labels)
        if self.settings.kept is not None:
            losses = losses * self._hard_pixels(losses.detach(), labels, self.settings.kept).astype(losses.dtype)
        total = losses.sum()
        for aux in auxiliary_logits:
            total = total + self.settings.aux_weight * self._losses(aux, labels).sum()
        return total

    def _losses(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        losses = F.cross_entropy(
            widen(logits), labels.unsqueeze(1), ignore_index=segment.IGNORE_INDEX, reduction="none", axis=1
        )
        return losses.squeeze(1)

    def _hard_pixels(self, losses: paddle.Tensor, labels: paddle.Tensor, kept_per_image: int) -> paddle.Tensor:
        """Return the pixels to train on: bool (N, H, W)."""
        valid, kept, threshold = labels != segment.IGNORE_INDEX, kept_per_image * len(losses), self.settings.threshold
        if threshold is None:
            ranked = paddle.where(valid, losses, paddle.full_like(losses, -1)).flatten().sort(descending=True)
            return valid & (losses >= ranked[min(kept, len(ranked)) - 1])
        probabilities = paddle.exp(-losses)  # of the target class
        ranked = paddle.where(valid, probabilities, paddle.full_like(probabilities, 2)).flatten().sort()
        limit = ranked[(valid.sum() - 1).clip(0, kept)]
        return valid & (probabilities < limit.clip(min=threshold))


def widen(x: paddle.Tensor) -> paddle.Tensor:
    """Return x in fp32, or in fp64 if it is."""
    return x if x.dtype == paddle.float64 else x.astype("float32")


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
