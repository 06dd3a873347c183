"""This rank's rows of a sharded parameter, and those of them that an update uses."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype
from mindspore.common.initializer import initializer

from zoo.trainer import sharding
from zoo.trainer.mindspore.fp64 import constant
from zoo.trainer.mindspore.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.state import momentum_key


class ParameterShard(nn.Cell):
    """Rows [first, last) of a parameter (num_rows, width) that is sharded over ranks; as a cell, their update.

    Args:
        name: canonical name of the parameter.
        num_rows: of the whole parameter.
        width: elements per row.
        sample_rate: fraction of the rows that an update uses (Partial FC).
        plan: param_group, momentum and seed.
        world: this process.

    Attributes:
        values: the rows of this rank.
        momentum: of `values`.
    """

    def __init__(self, name: str, num_rows: int, width: int, sample_rate: float, plan: Plan, world: World):
        super().__init__()
        self.num_rows, self.sample_rate, self.seed, self.rank = num_rows, sample_rate, plan.seed, world.rank
        self.first, self.last = sharding.row_range(num_rows, world.rank, world.size)
        shape, dtype = (self.last - self.first, width), mstype.float64 if plan.mode.is_fp64 else mstype.float32
        # No gradient for MindSpore to compute: the objective does.
        # initializer() and not ops.zeros(), whose result stays in MindSpore's pool beside the parameter's copy of it.
        self.values = Parameter(initializer("zeros", shape, dtype), name, requires_grad=False)
        self.momentum = Parameter(initializer("zeros", shape, dtype), momentum_key(name), requires_grad=False)
        number = constant if plan.mode.is_fp64 else float
        self.lr_scale, self.weight_decay = map(number, plan.param_group(name))
        self.momentum_factor = number(plan.momentum)
        self.apply_momentum = ops.ApplyMomentum()

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

    def construct(self, lr, gradient, multiplier, index=None):
        """Update the active rows with SGD; weights and momentum of all others remain unchanged."""
        rows = self.active_rows(index)
        direction = gradient * multiplier + self.weight_decay * rows
        if index is None and rows.dtype == mstype.float64:
            # By operations that round once each, so that every framework computes the same bits.
            update = self.momentum_factor * self.momentum + direction
            ops.assign(self.momentum, update)
            ops.assign(self.values, rows - lr * self.lr_scale * update)
        elif index is None:
            self.apply_momentum(self.values, self.momentum, lr * self.lr_scale, direction, self.momentum_factor)
        else:
            update = self.momentum_factor * ops.gather(self.momentum, index, 0) + direction
            ops.scatter_update(self.momentum, index, update)
            ops.scatter_update(self.values, index, rows - lr * self.lr_scale * update)
