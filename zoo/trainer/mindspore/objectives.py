"""The objectives of zoo/tasks in MindSpore; see Objective in zoo/trainer/protocol.py.

`total` is `construct`, which takes the model's output and the batch's fields `targets`. An objective with shards
computes its gradients itself: its `construct` also returns those with respect to the output and to the active rows.
"""

from collections.abc import Callable
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.tasks import classify, face, segment
from zoo.trainer.mindspore.fp64 import constant
from zoo.trainer.mindspore.margin import Margin
from zoo.trainer.mindspore.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.sharding import NoShards

Batch = dict[str, Tensor]


class CrossEntropy(NoShards, nn.Cell):
    """zoo.tasks.classify.CrossEntropy for logits (N, K) and `label` (N,)."""

    targets = ("label",)
    equal_counts = True

    def __init__(self, settings: classify.CrossEntropy, arch: Any = None, plan: Plan | None = None, *_: Any):
        super().__init__()
        self.is_smoothed = settings.smoothing > 0
        self.dtype, number = types(plan)
        self.smoothing = number(settings.smoothing)

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def construct(self, logits: Tensor, label: Tensor) -> Tensor:
        """Compute the sum of the losses."""
        losses = -self.log_softmax(logits.astype(self.dtype))
        target_loss = ops.gather_d(losses, 1, label.reshape(-1, 1)).sum()
        if not self.is_smoothed:
            return target_loss
        return (1 - self.smoothing) * target_loss + self.smoothing / logits.shape[1] * losses.sum()

    def log_softmax(self, logits: Tensor) -> Tensor:
        if self.dtype == mstype.float32:
            return ops.log_softmax(logits, -1)
        shifted = logits - ops.stop_gradient(logits.max(1, keepdims=True))  # MindSpore's is exact to 1e-6 only
        return shifted - ops.log(ops.exp(shifted).sum(1, keepdims=True))


class PixelCrossEntropy(NoShards, nn.Cell):
    """zoo.tasks.segment.PixelCrossEntropy for one or more logits (N, K, H, W) and `label` uint8 (N, H, W)."""

    targets = ("label",)

    def __init__(self, settings: segment.PixelCrossEntropy, arch: Any = None, plan: Plan | None = None, *_: Any):
        super().__init__()
        self.dtype, number = types(plan)
        self.equal_counts, self.aux_weight = settings.average == "all", number(settings.aux_weight)
        self.kept = settings.kept
        self.threshold = None if settings.threshold is None else number(settings.threshold)

    def count(self, batch: Batch) -> int | Tensor:
        if self.equal_counts:
            return batch["label"].size
        return (batch["label"] != segment.IGNORE_INDEX).astype(self.dtype).sum()

    def construct(self, outputs: tuple[Tensor, ...], label: Tensor) -> Tensor:
        """Compute the sum of the losses."""
        valid = label != segment.IGNORE_INDEX
        labels = ops.select(valid, label, ops.zeros_like(label)).astype(mstype.int32)
        losses = self.losses(outputs[0], labels, valid)
        if self.kept is not None:
            losses = losses * self.hard_pixels(ops.stop_gradient(losses), valid).astype(self.dtype)
        total = losses.sum()
        for logits in outputs[1:]:
            total = total + self.aux_weight * self.losses(logits, labels, valid).sum()
        return total

    def losses(self, logits: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
        """Compute the losses of all pixels: (N, H, W).

        Target logits are selected by a product with 0 and 1, because gathering them, with the gradient, takes three
        times as long on a CPU.
        """
        wide = logits.astype(self.dtype)
        shifted = wide - ops.stop_gradient(wide.max(1, keepdims=True))
        classes = ops.arange(logits.shape[1]).astype(mstype.int32).reshape(1, -1, 1, 1)
        target_logits = (shifted * (labels.expand_dims(1) == classes).astype(self.dtype)).sum(1)
        return (ops.log(ops.exp(shifted).sum(1)) - target_logits) * valid.astype(self.dtype)

    def hard_pixels(self, losses: Tensor, valid: Tensor) -> Tensor:
        """Return the pixels to train on: bool (N, H, W)."""
        kept = self.kept * losses.shape[0]
        if self.threshold is None:
            ranked = self.sort(ops.select(valid, losses, -ops.ones_like(losses)).reshape(-1), True)
            return ops.logical_and(valid, losses >= ranked[min(kept, losses.size) - 1])
        probabilities = ops.exp(-losses)  # of the target class
        ranked = self.sort(ops.select(valid, probabilities, 2 * ops.ones_like(probabilities)).reshape(-1), False)
        index = ops.clamp(valid.astype(mstype.int32).sum() - 1, 0, kept)
        limit = ops.maximum(ops.gather(ranked, index, 0), self.threshold)
        return ops.logical_and(valid, probabilities < limit)

    def sort(self, x: Tensor, descending: bool) -> Tensor:
        if self.dtype == mstype.float32:
            return ops.sort(x, -1, descending)[0]
        # On a CPU, ops.sort rounds to fp32.
        return ops.topk(x, x.size)[0] if descending else -ops.topk(-x, x.size)[0]


def types(plan: Plan | None) -> tuple[Any, Callable[[float], Any]]:
    """Return the floating-point type of losses, and what makes a number of the settings an operand of that type."""
    if plan is not None and plan.mode.is_fp64:
        return mstype.float64, constant
    return mstype.float32, float


IMPLEMENTATIONS: dict[type, type] = {
    classify.CrossEntropy: CrossEntropy,
    segment.PixelCrossEntropy: PixelCrossEntropy,
    face.Margin: Margin,
}


def build(
    settings: Any, arch: Any = None, plan: Plan | None = None, world: World | None = None
) -> CrossEntropy | PixelCrossEntropy | Margin:
    """Return the implementation of a task's objective.

    Args:
        settings: specification of the objective, from zoo/tasks.
        arch, plan, world: needed by an objective with parameters of its own.
    """
    return IMPLEMENTATIONS[type(settings)](settings, arch, plan, world)
