"""The objectives of zoo/tasks in PaddlePaddle, with a loss of zoo/losses; see Objective in zoo/trainer/protocol.py."""

from collections.abc import Sequence
from typing import Any

import paddle

from zoo.data.batch import LABEL, SOFT_LABEL
from zoo.losses import load_implementation
from zoo.tasks import classify, face, segment
from zoo.trainer.paddle.margin import Margin
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import Objective
from zoo.trainer.sharding import Stateless

Batch = dict[str, paddle.Tensor]


class Classification(Stateless):
    """zoo.tasks.classify.Classification for logits (N, K) and `label` (N,) or `soft_label` (N, K)."""

    equal_counts = True

    def __init__(self, settings: classify.Classification, *_: Any):
        self.loss = load_implementation(settings.loss, "paddle").Loss(settings.loss)

    def count(self, batch: Batch) -> int:
        return len(batch[LABEL.name])

    def total(self, output: paddle.Tensor, batch: Batch) -> paddle.Tensor:
        return self.loss(widen(output), batch.get(SOFT_LABEL, batch[LABEL.name]))


class Segmentation(Stateless):
    """zoo.tasks.segment.Segmentation for one or more logits (N, K, H, W) and `label` uint8 (N, H, W)."""

    def __init__(self, settings: segment.Segmentation, *_: Any):
        self.loss = load_implementation(settings.loss, "paddle").Loss(settings.loss)
        self.aux_loss = load_implementation(settings.aux_loss, "paddle").Loss(settings.aux_loss)
        self.settings, self.equal_counts = settings, self.loss.equal_counts

    def count(self, batch: Batch) -> int | paddle.Tensor:
        return self.loss.count(batch["label"])

    def total(self, output: Sequence[paddle.Tensor], batch: Batch) -> paddle.Tensor:
        labels, (logits, *auxiliary_logits) = batch["label"].astype("int64"), output
        total = self.loss(widen(logits), labels)
        return total + self.settings.aux_weight * sum(self.aux_loss(widen(aux), labels) for aux in auxiliary_logits)


def widen(x: paddle.Tensor) -> paddle.Tensor:
    """Return x in fp32, or in fp64 if it is."""
    return x if x.dtype == paddle.float64 else x.astype("float32")


IMPLEMENTATIONS: dict[type, type] = {
    classify.Classification: Classification,
    segment.Segmentation: Segmentation,
    face.Margin: Margin,
}


def build(settings: Any, arch: Any = None, plan: Plan | None = None, world: World | None = None) -> Objective:
    """Return the implementation of a task's objective.

    Args:
        settings: specification of the objective, from zoo/tasks.
        arch, plan, world: needed by an objective with parameters of its own.
    """
    return IMPLEMENTATIONS[type(settings)](settings, arch, plan, world)
