"""This rank's rows of a parameter that is split over ranks, and those of them that an update uses."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer

from zoo.trainer import sharding


class ParameterShard(nn.Cell):
    """values: the rows held here, with their momentum; as a cell, the step along the gradient of the rows used.

    index: which rows are used, int32, rising; None for all.
    """

    def __init__(self, name: str, count: int, width: int, rate: float, plan, world):
        super().__init__()
        self.count, self.seed, self.rate, self.rank = count, plan.seed, rate, world.rank
        self.first, self.last = sharding.row_range(count, world.rank, world.size)
        shape = (self.last - self.first, width)
        # Not for MindSpore to find the gradient of: the objective does.
        # initializer() and not ops.zeros(), whose result stays in MindSpore's pool beside the parameter's copy of it.
        self.values = Parameter(initializer("zeros", shape), name, requires_grad=False)
        self.momentum = Parameter(initializer("zeros", shape), f"momentum/{name}", requires_grad=False)
        (self.factor, self.decay), self.friction = plan.param_group(name), plan.momentum
        self.apply_momentum = ops.ApplyMomentum()

    def sample_rows(self, classes: Tensor, number: int) -> dict[str, Tensor]:
        """The rows of update `number`. classes: int32, any shape, those of the update's samples on all ranks.

        row: where each class lies among the rows used here, -1 if it is another rank's; index, if not all are used.
        """
        held = ops.logical_and(classes >= self.first, classes < self.last)
        local = ops.select(held, classes - self.first, ops.full_like(classes, -1))
        if self.rate == 1:
            return {"row": local}
        local = local.asnumpy()  # waits for the device: the draw is the host's
        positives = np.unique(local[local >= 0]).astype(np.int64)
        held = self.last - self.first
        count = sharding.num_active_rows(held, self.rate, local.size)
        chosen = sharding.sample_active_rows(positives, held, count, self.seed, self.rank, number)
        row = np.where(local >= 0, np.searchsorted(chosen, local), -1)
        return {"row": Tensor(row.astype(np.int32)), "index": Tensor(chosen.astype(np.int32))}

    def active_rows(self, index: Tensor | None) -> Tensor:
        return self.values if index is None else ops.gather(self.values, index, 0)

    def construct(self, lr, gradient, multiplier, index=None):
        """SGD on the rows used alone: weight, momentum and decay of all others stay as they are."""
        rows = self.active_rows(index)
        direction = gradient * multiplier + self.decay * rows
        if index is None:
            self.apply_momentum(self.values, self.momentum, lr * self.factor, direction, self.friction)
        else:
            moved = self.friction * ops.gather(self.momentum, index, 0) + direction
            ops.scatter_update(self.momentum, index, moved)
            ops.scatter_update(self.values, index, rows - lr * self.factor * moved)


def gather(x: Tensor, size: int) -> Tensor:
    """The rows of all ranks, one rank's after the other's: (n, ...) -> (ranks * n, ...)."""
    return ops.AllGather()(x) if size > 1 else x
