"""This rank's rows of a parameter that is split over ranks, and those of them that an update uses."""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from zoo.trainer import sharding


class ParameterShard:
    """values: the rows held here. used: those of the update under way, whose gradient it is; all, unless sampled.

    index: which they are, int64; None for all. momentum: of the rows held, where the optimizer does not keep it.
    """

    def __init__(self, count: int, width: int, rate: float, seed: int, world):
        self.count, self.seed, self.rate, self.rank = count, seed, rate, world.rank
        self.first, self.last = sharding.row_range(count, world.rank, world.size)
        self.values = nn.Parameter(
            torch.zeros(self.last - self.first, width, device=world.torch_device), requires_grad=rate == 1
        )
        self.momentum = None if rate == 1 else torch.zeros_like(self.values)
        self.index: torch.Tensor | None = None
        self.active_rows = self.values

    def sample_rows(self, classes: torch.Tensor, number: int) -> torch.Tensor:
        """Fix the rows of update `number`. classes: int64, any shape, those of the update's samples on all ranks.

        Where each class lies among the rows used here, -1 if it is another rank's.
        """
        held = (classes >= self.first) & (classes < self.last)
        local = torch.where(held, classes - self.first, -1)
        if self.rate == 1:
            return local
        positives = np.unique(local[held].cpu().numpy())  # waits for the device: the draw is the host's
        count = sharding.num_active_rows(len(self.values), self.rate, classes.numel())
        chosen = sharding.sample_active_rows(positives, len(self.values), count, self.seed, self.rank, number)
        self.index = torch.from_numpy(chosen).to(classes.device)
        self.active_rows = self.values.detach()[self.index].requires_grad_()
        return torch.where(held, torch.searchsorted(self.index, local), -1)

    @torch.no_grad()
    def step(self, lr: float, decay: float, momentum: float, divisor: torch.Tensor, finite: torch.Tensor) -> None:
        """SGD on the rows used alone: weight, momentum and decay of all others stay as they are."""
        rows, velocity = self.active_rows.detach(), self.momentum[self.index]
        moved = self.active_rows.grad.div_(divisor).add_(rows, alpha=decay).add_(velocity, alpha=momentum)
        self.momentum[self.index] = torch.where(finite, moved, velocity)
        self.values.detach()[self.index] = torch.where(finite, rows.sub(moved, alpha=lr), rows)


def squares(x: torch.Tensor) -> torch.Tensor:
    """The sum of squares, in float64: on a CPU PyTorch adds up in fp32, and loses a percent of a hundred million.

    Block by block, since there it makes a copy in float64.
    """
    return sum(torch.linalg.vector_norm(block, dtype=torch.float64).square() for block in x.flatten().split(1 << 24))


def gather(x: torch.Tensor) -> torch.Tensor:
    """The rows of all ranks, one rank's after the other's: (n, ...) -> (ranks * n, ...)."""
    if not dist.is_initialized():
        return x
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def reduce(x: torch.Tensor, kind=dist.ReduceOp.SUM) -> torch.Tensor:
    """The sum (or maximum) over ranks, in place."""
    if dist.is_initialized():
        dist.all_reduce(x, kind)
    return x
