"""The objectives of zoo/tasks in PaddlePaddle.

An objective is two functions of a batch: `count`, how many items the mean is taken over, and `total`, the sum of their
losses. The trainer divides one by the other's sum over all parts and ranks, so no mean is ever taken of means. `even`
says that every rank counts as many, so that nobody need ask. One that has parameters of its own, split over ranks,
names them in `shards`, and `begin` is called with all parts of an update before it.
"""

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F

from zoo.tasks import classify, face, segment
from zoo.trainer.paddle.margin import Margin


class CrossEntropy:
    """zoo.tasks.classify.CrossEntropy: logits (N, K), `label` (N,)."""

    equal_counts = True

    def __init__(self, settings: classify.CrossEntropy):
        self.smoothing = settings.smoothing

    def count(self, batch: dict[str, paddle.Tensor]) -> int:
        return len(batch["label"])

    def total(self, logits: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        return F.cross_entropy(
            logits.astype("float32"), batch["label"], reduction="sum", label_smoothing=self.smoothing
        )


class PixelCrossEntropy:
    """zoo.tasks.segment.PixelCrossEntropy: several logits (N, K, H, W), `label` uint8 (N, H, W)."""

    def __init__(self, settings: segment.PixelCrossEntropy):
        self.settings, self.equal_counts = settings, settings.average == "all"

    def count(self, batch: dict[str, paddle.Tensor]) -> int | paddle.Tensor:
        return batch["label"].size if self.equal_counts else (batch["label"] != segment.IGNORE_INDEX).sum()

    def total(self, outputs: Sequence[paddle.Tensor], batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        labels, (first, *others) = batch["label"].astype("int64"), outputs
        losses = self._losses(first, labels)
        if self.settings.kept is not None:
            losses = losses * self._hard(losses.detach(), labels != segment.IGNORE_INDEX).astype("float32")
        total = losses.sum()
        for logits in others:
            total = total + self.settings.aux_weight * self._losses(logits, labels).sum()
        return total

    def _losses(self, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
        losses = F.cross_entropy(
            logits.astype("float32"), labels.unsqueeze(1), ignore_index=segment.IGNORE_INDEX, reduction="none", axis=1
        )
        return losses.squeeze(1)

    def _hard(self, losses: paddle.Tensor, valid: paddle.Tensor) -> paddle.Tensor:
        """Which pixels to train on: bool (N, H, W)."""
        kept, threshold = self.settings.kept * len(losses), self.settings.threshold
        if threshold is None:
            ranked = paddle.where(valid, losses, paddle.full_like(losses, -1)).flatten().sort(descending=True)
            return valid & (losses >= ranked[min(kept, len(ranked)) - 1])
        own = paddle.exp(-losses)  # the probability of a pixel's own class
        ranked = paddle.where(valid, own, paddle.full_like(own, 2)).flatten().sort()
        edge = ranked[(valid.sum() - 1).clip(0, kept)]
        return valid & (own < edge.clip(min=threshold))


def build(objective, arch=None, plan=None, world=None) -> CrossEntropy | PixelCrossEntropy | Margin:
    """The implementation of a task's objective. arch, plan, world: for one that has parameters of its own."""
    if isinstance(objective, face.Margin):
        return Margin(objective, arch, plan, world)
    if isinstance(objective, segment.PixelCrossEntropy):
        return PixelCrossEntropy(objective)
    if isinstance(objective, classify.CrossEntropy):
        return CrossEntropy(objective)
    raise TypeError(f"no Paddle objective for {objective}")
