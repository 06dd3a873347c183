"""The class matrix of a face model in MindSpore, sharded over ranks, and margin softmax with it.

The loss and its gradients are in zoo/trainer/margin.py; the gradients are computed directly after the loss, so that no
matrix of the logits' size is kept for later. With Partial FC, an update uses some of the rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, jit_class, nn
from mindspore import dtype as mstype
from mindspore import ops as mint
from mindspore.common.initializer import initializer

from zoo.losses import face
from zoo.tasks.face import HEAD_WEIGHT
from zoo.trainer import sharding
from zoo.trainer.margin import MarginSoftmax
from zoo.trainer.mindspore import ops
from zoo.trainer.mindspore.model import DTYPES
from zoo.trainer.mindspore.optimizer import ParameterUpdate
from zoo.trainer.mindspore.parallel import all_gather
from zoo.trainer.mindspore.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.state import slot_key, statistic_key

Batch = dict[str, Tensor]
jit_class(MarginSoftmax)


class ParameterShard(nn.Cell):
    """Rows [first, last) of a parameter (num_rows, width) that is sharded over ranks; as a cell, their update.

    Args:
        sample_rate: fraction of the rows that an update uses (Partial FC).
        plan: param_group, optimizer and seed.

    Attributes:
        slots: of `values`, in the order of the optimizer's specification.
    """

    def __init__(self, name: str, num_rows: int, width: int, sample_rate: float, plan: Plan, world: World):
        super().__init__()
        self.num_rows = num_rows
        self.sample_rate = sample_rate
        self.seed = plan.seed
        self.rank = world.rank
        self.first, self.last = sharding.row_range(num_rows, world.rank, world.size)
        shape, dtype = (self.last - self.first, width), mstype.float64 if plan.mode.is_fp64 else mstype.float32
        # No gradient for MindSpore to compute: the objective does.
        # initializer() and not ops.zeros(), whose result stays in MindSpore's pool beside the parameter's copy of it.
        self.values = Parameter(initializer("zeros", shape, dtype), name, requires_grad=False)
        self.slots = ParameterTuple(
            Parameter(initializer("zeros", shape, dtype), slot_key(slot, name), requires_grad=False)
            for slot in plan.optimizer.slots
        )
        self.optimizer = ParameterUpdate(plan, world.device_type == "cpu", world.size)
        self.lr_scale, self.weight_decay = (ops.operand(x, plan.mode.is_fp64) for x in plan.param_group(name))

    def sample_rows(self, classes: Tensor, step: int) -> dict[str, Tensor]:
        """Select the rows of an update.

        Args:
            classes: int32, any shape: of all samples of the update, on all ranks.

        Returns:
            `target_rows`: the active row of each class; -1 for a class of another rank. If rows are sampled also
            `index`: int32, sorted: which rows are active.
        """
        is_local = mint.logical_and(classes >= self.first, classes < self.last)
        rows = ops.where(is_local, classes - self.first, -1)
        if self.sample_rate == 1:
            return {"target_rows": rows}
        host_rows = rows.asnumpy()  # waits for the device: rows are sampled on the host
        index = sharding.choose_active_rows(
            host_rows, self.last - self.first, self.sample_rate, self.seed, self.rank, step
        )
        target_rows = np.where(host_rows >= 0, np.searchsorted(index, host_rows), -1)
        return {"target_rows": Tensor(target_rows.astype(np.int32)), "index": Tensor(index.astype(np.int32))}

    def active_rows(self, index: Tensor | None) -> Tensor:
        """Return the rows that the update uses; index None: all."""
        return self.values if index is None else mint.gather(self.values, index, 0)

    def construct(self, lr, applied, finite, gradient, index=None):
        """Update the active rows; weights and slots of all others remain unchanged.

        Args:
            index: the active rows; None for all.
        """
        group = self.lr_scale, self.weight_decay
        if index is None:
            self.optimizer(lr, applied, finite, self.values, gradient, *group, *self.slots)
            return
        rows = mint.gather(self.values, index, 0)
        slots: tuple = ()
        for slot in self.slots:
            slots += (mint.gather(slot, index, 0),)
        new = self.optimizer.formula(lr, applied, rows, gradient, *group, *slots)
        mint.scatter_update(self.values, index, self.optimizer.selected(finite, new[0], rows))
        for i in range(len(slots)):
            mint.scatter_update(self.slots[i], index, self.optimizer.selected(finite, new[i + 1], slots[i]))


class Margin(nn.Cell):
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Settings, arch: Any, plan: Plan, world: World):
        super().__init__()
        self.settings, self.world_size = settings, world.size
        self.softmax = MarginSoftmax(ops, ops.compiled(settings), world.rank, world.size, DTYPES.get(plan.mode.compute))
        self.dtype = mstype.float64 if plan.mode.is_fp64 else mstype.float32
        # Not called `shard`, which is a method of every Cell.
        self.parameter_shard = ParameterShard(
            HEAD_WEIGHT, arch.num_classes, arch.embedding, settings.sample_rate, plan, world
        )
        self.shards = {HEAD_WEIGHT: self.parameter_shard}
        self.statistics = {
            name: Parameter(Tensor(value, self.dtype), statistic_key(name), requires_grad=False)
            for name, value in settings.statistics.items()
        }
        self.moved = ParameterTuple(self.statistics.values())
        self.targets = ("target_rows",) if settings.sample_rate == 1 else ("target_rows", "index")

    def begin(self, micro_batches: Sequence[Batch], step: int) -> list[Batch]:
        """Select the active rows of the class matrix.

        Returns:
            The micro-batches with `target_rows`: the active row of the class of each sample of all ranks, or -1; and
            `index`, the active rows, if they are sampled.
        """
        labels = mint.stack([all_gather(batch["label"], self.world_size) for batch in micro_batches])
        sampled = self.parameter_shard.sample_rows(labels, step)
        target_rows = sampled.pop("target_rows")
        return [{**batch, **sampled, "target_rows": target_rows[i]} for i, batch in enumerate(micro_batches)]

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def construct(self, embeddings: Tensor, target_rows: Tensor, index=None) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the sum of the losses of this rank's samples.

        Args:
            embeddings: (N, d).
            target_rows: (M,), for the M samples of all ranks: the row of a sample's class among the K active rows
                of this rank, or -1.
            index: (K,), the active rows; None for all.

        Returns:
            The sum; its gradient with respect to the embeddings; the gradient of all ranks' sum with respect to the
            active rows.
        """
        weight = self.parameter_shard.active_rows(index)
        loss, saved = self.softmax.forward(embeddings.astype(self.dtype), weight, target_rows, self.moved)
        grad_embeddings, grad_weight = self.softmax.backward(saved, 1.0)
        return loss, grad_embeddings, grad_weight
