"""This rank's rows of a sharded parameter, and those of them that an update uses."""

import numpy as np
import torch
from torch import nn

from zoo.trainer import sharding
from zoo.trainer.torch.host import upload
from zoo.trainer.torch.world import World


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

    def __init__(
        self,
        num_rows: int,
        width: int,
        sample_rate: float,
        seed: int,
        world: World,
        dtype: torch.dtype = torch.float32,
    ):
        self.num_rows, self.sample_rate, self.seed, self.rank = num_rows, sample_rate, seed, world.rank
        self.first, self.last = sharding.row_range(num_rows, world.rank, world.size)
        zeros = torch.zeros(self.last - self.first, width, dtype=dtype, device=world.torch_device)
        self.values = nn.Parameter(zeros, requires_grad=sample_rate == 1)
        self.index: torch.Tensor | None = None
        self.active_rows: torch.Tensor = self.values

    def sample_rows(self, classes: np.ndarray, step: int) -> None:
        """Sample the rows of an update.

        Args:
            classes: any shape: of all samples of the update, on all ranks.
            step: number of the update.
        """
        rows = np.where((classes >= self.first) & (classes < self.last), classes - self.first, -1)
        index = sharding.choose_active_rows(rows, len(self.values), self.sample_rate, self.seed, self.rank, step)
        self.index = upload(torch.from_numpy(index), self.values.device)
        self.active_rows = self.values.detach()[self.index].requires_grad_()

    def rows_of(self, classes: torch.Tensor) -> torch.Tensor:
        """Return the active row of each class, int64 of the same shape; -1 for a class of another rank."""
        is_local = (classes >= self.first) & (classes < self.last)
        rows = torch.where(is_local, classes - self.first, -1)
        return rows if self.index is None else torch.where(is_local, torch.searchsorted(self.index, rows), -1)


def squared_norm(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of squares in float64.

    On CPUs, PyTorch sums in fp32 and loses a percent of a hundred million elements. Computed in blocks, because there
    vector_norm makes a float64 copy.
    """
    zero = torch.zeros((), dtype=torch.float64, device=x.device)
    blocks = x.flatten().split(1 << 24)
    return sum((torch.linalg.vector_norm(block, dtype=torch.float64).square() for block in blocks), zero)
