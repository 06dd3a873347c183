"""The objectives of zoo/tasks in MindSpore, with a loss of zoo/losses; see Objective in zoo/trainer/protocol.py.

`total` is `construct`, which takes the model's output and the batch's fields `targets`. An objective with shards
computes its gradients itself: its `construct` also returns those with respect to the output and to the active rows.
"""

from typing import Any

from mindspore import Tensor, nn

from zoo.data.batch import LABEL, SOFT_LABEL
from zoo.losses import load_implementation
from zoo.tasks import classify, face, segment
from zoo.trainer.mindspore.losses.types import types
from zoo.trainer.mindspore.margin import Margin
from zoo.trainer.mindspore.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.sharding import Stateless

Batch = dict[str, Tensor]


class Classification(Stateless, nn.Cell):
    """zoo.tasks.classify.Classification for logits (N, K) and `label` (N,) or `soft_label` (N, K)."""

    equal_counts = True

    def __init__(self, settings: classify.Classification, arch: Any = None, plan: Plan | None = None, *_: Any):
        super().__init__()
        self.dtype, _number = types(plan)
        self.loss = load_implementation(settings.loss, "mindspore").Loss(settings.loss, plan)
        fields = [] if plan is None else [field.name for field in plan.fields]
        self.targets = (SOFT_LABEL if SOFT_LABEL in fields else LABEL.name,)

    def count(self, batch: Batch) -> int:
        return len(batch[LABEL.name])

    def construct(self, logits: Tensor, target: Tensor) -> Tensor:
        """Compute the sum of the losses."""
        return self.loss(logits.astype(self.dtype), target)


class Segmentation(Stateless, nn.Cell):
    """zoo.tasks.segment.Segmentation for one or more logits (N, K, H, W) and `label` uint8 (N, H, W)."""

    targets = ("label",)

    def __init__(self, settings: segment.Segmentation, arch: Any = None, plan: Plan | None = None, *_: Any):
        super().__init__()
        self.dtype, number = types(plan)
        self.loss = load_implementation(settings.loss, "mindspore").Loss(settings.loss, plan)
        self.aux_loss = load_implementation(settings.aux_loss, "mindspore").Loss(settings.aux_loss, plan)
        self.equal_counts, self.aux_weight = self.loss.equal_counts, number(settings.aux_weight)

    def count(self, batch: Batch) -> int | Tensor:
        return self.loss.count(batch["label"])

    def construct(self, outputs: tuple[Tensor, ...], label: Tensor) -> Tensor:
        """Compute the sum of the losses."""
        total = self.loss(outputs[0].astype(self.dtype), label)
        for logits in outputs[1:]:
            total = total + self.aux_weight * self.aux_loss(logits.astype(self.dtype), label)
        return total


IMPLEMENTATIONS: dict[type, type] = {
    classify.Classification: Classification,
    segment.Segmentation: Segmentation,
    face.Margin: Margin,
}


def build(
    settings: Any, arch: Any = None, plan: Plan | None = None, world: World | None = None
) -> Classification | Segmentation | Margin:
    """Return the implementation of a task's objective.

    Args:
        settings: specification of the objective, from zoo/tasks.
        arch, plan, world: needed by an objective with parameters of its own.
    """
    return IMPLEMENTATIONS[type(settings)](settings, arch, plan, world)
