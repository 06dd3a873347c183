"""The objectives of classification and segmentation in any framework; see Objective in zoo/trainer/protocol.py."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from zoo.data.batch import LABEL, SOFT_LABEL
from zoo.tasks import load_task
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import DeviceBatch


class Stateless:
    """The part of an Objective that concerns sharded parameters and running statistics, for one that has none."""

    shards: Mapping[str, Any] = MappingProxyType({})
    statistics: Mapping[str, Any] = MappingProxyType({})

    def begin(self, micro_batches: Sequence[DeviceBatch], step: int) -> Sequence[DeviceBatch]:
        return micro_batches


class Classification(Stateless):
    """Loss of logits (N, K) and `label` (N,) or (N, K), or `soft_label` (N, K) where the batch has that field."""

    equal_counts = True

    def __init__(self, ops: Any, loss: Any, plan: Plan | None, dtype: Any, count_dtype: Any):
        self.ops = ops
        self.settings = loss
        self.loss = loss
        self.dtype = dtype
        fields = [] if plan is None else [field.name for field in plan.fields]
        self.targets = (SOFT_LABEL if SOFT_LABEL in fields else LABEL.name,)

    def count(self, batch: DeviceBatch) -> int:
        return len(batch[LABEL.name])

    def total(self, logits: Any, target: Any) -> Any:
        return self.loss.total(self.ops, self.ops.astype(logits, self.dtype), target)


class Segmentation(Stateless):
    """Loss of one or more logits (N, K, H, W) and `label` uint8 (N, H, W); arguments as of Classification."""

    targets = ("label",)

    def __init__(self, ops: Any, loss: Any, plan: Plan | None, dtype: Any, count_dtype: Any):
        self.ops = ops
        self.dtype = dtype
        self.count_dtype = count_dtype
        self.equal_counts = loss.equal_counts
        self.settings, self.loss, self.aux_loss = loss, loss, loss.auxiliary()

    def count(self, batch: DeviceBatch) -> Any:
        return self.loss.count(self.ops, batch["label"], self.count_dtype)

    def total(self, outputs: Sequence[Any], labels: Any) -> Any:
        total = self.loss.total(self.ops, self.ops.astype(outputs[0], self.dtype), labels)
        for logits in outputs[1:]:
            loss = self.aux_loss.total(self.ops, self.ops.astype(logits, self.dtype), labels)
            total = total + self.ops.number(self.loss.aux_weight, self.dtype) * loss
        return total


OBJECTIVES: dict[str, type[Any]] = {  # by task; face has its own
    "classify": Classification,
    "multilabel": Classification,
    "segment": Segmentation,
}


def find_objective(task: str) -> Any:
    """Return the class of a task's objective; a task of an installed package has an `Objective`."""
    return OBJECTIVES.get(task) or load_task(task).Objective
