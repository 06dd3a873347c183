"""This rank's rows of a sharded parameter, and those of them that an update uses."""

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype
from mindspore.common.initializer import initializer

from zoo.trainer import sharding
from zoo.trainer.mindspore import optimizers
from zoo.trainer.mindspore.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.state import slot_key


class ParameterShard(nn.Cell):
    """Rows [first, last) of a parameter (num_rows, width) that is sharded over ranks; as a cell, their update.

    Args:
        name: canonical name of the parameter.
        num_rows: of the whole parameter.
        width: elements per row.
        sample_rate: fraction of the rows that an update uses (Partial FC).
        plan: param_group, optimizer and seed.
        world: this process.

    Attributes:
        values: the rows of this rank.
        slots: of `values`, in the order of the optimizer's specification.
    """

    def __init__(self, name: str, num_rows: int, width: int, sample_rate: float, plan: Plan, world: World):
        super().__init__()
        self.num_rows, self.sample_rate, self.seed, self.rank = num_rows, sample_rate, plan.seed, world.rank
        self.first, self.last = sharding.row_range(num_rows, world.rank, world.size)
        shape, dtype = (self.last - self.first, width), mstype.float64 if plan.mode.is_fp64 else mstype.float32
        # No gradient for MindSpore to compute: the objective does.
        # initializer() and not ops.zeros(), whose result stays in MindSpore's pool beside the parameter's copy of it.
        self.values = Parameter(initializer("zeros", shape, dtype), name, requires_grad=False)
        self.slots = ParameterTuple(
            Parameter(initializer("zeros", shape, dtype), slot_key(slot, name), requires_grad=False)
            for slot in plan.optimizer.slots
        )
        self.optimizer = optimizers.build(plan, world.device_type == "cpu", world.size)
        self.lr_scale, self.weight_decay = map(self.optimizer.number, plan.param_group(name))
        self.is_decayed = plan.param_group(name).weight_decay > 0

    def sample_rows(self, classes: Tensor, step: int) -> dict[str, Tensor]:
        """Select the rows of an update.

        Args:
            classes: int32, any shape: of all samples of the update, on all ranks.
            step: number of the update.

        Returns:
            `target_rows`: the active row of each class; -1 for a class of another rank. If rows are sampled also
            `index`: int32, sorted: which rows are active.
        """
        is_local = ops.logical_and(classes >= self.first, classes < self.last)
        rows = ops.select(is_local, classes - self.first, ops.full_like(classes, -1))
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
        return self.values if index is None else ops.gather(self.values, index, 0)

    def construct(self, lr, applied, finite, gradient, index=None):
        """Update the active rows; weights and slots of all others remain unchanged.

        Args:
            lr, applied, finite: see Elementwise.
            gradient: of the active rows, without loss scale, clipped.
            index: the active rows; None for all.
        """
        group = self.lr_scale, self.weight_decay, self.is_decayed, True
        if index is None:
            self.optimizer(lr, applied, finite, self.values, gradient, *group, *self.slots)
            return
        rows = ops.gather(self.values, index, 0)
        slots: tuple = ()
        for slot in self.slots:
            slots += (ops.gather(slot, index, 0),)
        new = self.optimizer.formula(lr * self.lr_scale, applied, rows, gradient, *group[1:], *slots)
        ops.scatter_update(self.values, index, self.optimizer.selected(finite, new[0], rows))
        for i in range(len(slots)):
            ops.scatter_update(self.slots[i], index, self.optimizer.selected(finite, new[i + 1], slots[i]))
