"""This rank's rows of a parameter that is split over ranks, and those of them that an update uses."""

import numpy as np
import paddle
import paddle.distributed as dist

from zoo.trainer import sharding
from zoo.trainer.paddle.update import momentum_update


class ParameterShard:
    """values: the rows held here, and momentum theirs. used: those of the update under way, whose gradient it is; all,
    unless sampled. index: which they are, int64; None for all.
    """

    def __init__(self, count: int, width: int, rate: float, seed: int, world):
        self.count, self.seed, self.rate, self.rank = count, seed, rate, world.rank
        self.first, self.last = sharding.row_range(count, world.rank, world.size)
        self.values = paddle.zeros((self.last - self.first, width))
        self.values.stop_gradient = rate < 1
        self.momentum = paddle.zeros_like(self.values)
        self.index: paddle.Tensor | None = None
        self.active_rows = self.values

    def sample_rows(self, classes: paddle.Tensor, number: int) -> paddle.Tensor:
        """Fix the rows of update `number`. classes: int64, any shape, those of the update's samples on all ranks.

        Where each class lies among the rows used here, -1 if it is another rank's.
        """
        self.active_rows.grad = None  # clear_gradient keeps the memory
        held = (classes >= self.first) & (classes < self.last)
        others = paddle.full_like(classes, -1)
        local = paddle.where(held, classes - self.first, others)
        if self.rate == 1:
            return local
        positives = np.unique(local.numpy())  # waits for the device: the draw is the host's
        count = sharding.num_active_rows(len(self.values), self.rate, classes.size)
        chosen = sharding.sample_active_rows(positives[positives >= 0], len(self.values), count, self.seed, self.rank, number)
        self.index = paddle.to_tensor(chosen, place=classes.place)
        self.active_rows = paddle.gather(self.values, self.index)
        self.active_rows.stop_gradient = False
        return paddle.where(held, paddle.searchsorted(self.index, local), others)

    def step(self, lr: float, decay: float, momentum: float, rescale: float) -> None:
        """SGD on the rows used alone: weight, momentum and decay of all others stay as they are."""
        velocity = self.momentum if self.index is None else paddle.gather(self.momentum, self.index)
        momentum_update([self.active_rows], [self.active_rows.grad.scale_(rescale)], [velocity], [lr], [decay], momentum)
        if self.index is not None:
            paddle.scatter_(self.values, self.index, self.active_rows)
            paddle.scatter_(self.momentum, self.index, velocity)


def gather(x: paddle.Tensor) -> paddle.Tensor:
    """The rows of all ranks, one rank's after the other's: (n, ...) -> (ranks * n, ...)."""
    if dist.get_world_size() == 1:
        return x
    parts: list[paddle.Tensor] = []
    dist.all_gather(parts, x)
    return paddle.concat(parts)


def reduce(x: paddle.Tensor, kind=dist.ReduceOp.SUM) -> paddle.Tensor:
    """The sum (or maximum) over ranks, in place."""
    if dist.get_world_size() > 1:
        dist.all_reduce(x, kind)
    return x
