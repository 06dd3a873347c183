"""This rank's rows of a sharded parameter, and those of them that an update uses."""

from typing import Any

import paddle

from zoo.trainer import sharding
from zoo.trainer.paddle.world import World


class ParameterShard:
    """Rows [first, last) of a parameter (num_rows, width) that is sharded over ranks.

    Args:
        num_rows: of the whole parameter.
        width: elements per row.
        sample_rate: fraction of the rows that an update uses (Partial FC).
        seed: of the sampling.
        world: this process.
        dtype: of the parameter.

    Attributes:
        values: the rows of this rank.
        active_rows: the rows that the current update uses, with its gradient; `values` unless they are sampled.
        index: int64, sorted: which rows are active; None for all.
    """

    def __init__(self, num_rows: int, width: int, sample_rate: float, seed: int, world: World, dtype: Any = "float32"):
        self.num_rows, self.sample_rate, self.seed, self.rank = num_rows, sample_rate, seed, world.rank
        self.first, self.last = sharding.row_range(num_rows, world.rank, world.size)
        self.values = paddle.zeros((self.last - self.first, width), dtype)
        self.values.stop_gradient = sample_rate < 1
        self.index: paddle.Tensor | None = None
        self.active_rows = self.values

    def sample_rows(self, classes: paddle.Tensor, step: int) -> paddle.Tensor:
        """Select the rows of an update.

        Args:
            classes: int64, any shape: of all samples of the update, on all ranks.
            step: number of the update.

        Returns:
            The active row of each class; -1 for a class of another rank.
        """
        self.active_rows.clear_gradient(False)  # frees the memory; with True it would be filled with zeros
        is_local = (classes >= self.first) & (classes < self.last)
        absent = paddle.full_like(classes, -1)
        rows = paddle.where(is_local, classes - self.first, absent)
        if self.sample_rate == 1:
            return rows
        host_rows = rows.numpy()  # waits for the device: rows are sampled on the host
        index = sharding.choose_active_rows(host_rows, len(self.values), self.sample_rate, self.seed, self.rank, step)
        self.index = paddle.to_tensor(index, place=classes.place)
        self.active_rows = paddle.gather(self.values, self.index)
        self.active_rows.stop_gradient = False
        return paddle.where(is_local, paddle.searchsorted(self.index, rows), absent)
