"""The class matrix of a face model in PyTorch, sharded over ranks, and margin softmax with it (zoo/trainer/margin.py).

With Partial FC, an update uses some of the rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.function import once_differentiable

from zoo.losses import face
from zoo.tasks.face import HEAD_WEIGHT
from zoo.trainer import sharding
from zoo.trainer.margin import MarginSoftmax
from zoo.trainer.plan import Plan
from zoo.trainer.torch import ops
from zoo.trainer.torch.model import mixed_dtype, wide_dtype
from zoo.trainer.torch.parallel import HostGather, all_gather, upload
from zoo.trainer.torch.world import World

Batch = dict[str, torch.Tensor]


class ParameterShard:
    """Rows [first, last) of a parameter (num_rows, width) that is sharded over ranks.

    Args:
        sample_rate: fraction of the rows that an update uses (Partial FC).

    Attributes:
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
        self.num_rows = num_rows
        self.sample_rate = sample_rate
        self.seed = seed
        self.rank = world.rank
        self.first, self.last = sharding.row_range(num_rows, world.rank, world.size)
        zeros = torch.zeros(self.last - self.first, width, dtype=dtype, device=world.torch_device)
        self.values = nn.Parameter(zeros, requires_grad=sample_rate == 1)
        self.index: torch.Tensor | None = None
        self.active_rows: torch.Tensor = self.values

    def sample_rows(self, classes: np.ndarray, step: int) -> None:
        """Sample the rows of an update.

        Args:
            classes: any shape: of all samples of the update, on all ranks.
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


class Margin:
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts, targets = True, ("target_rows",)

    def __init__(self, settings: face.Settings, arch: Any, plan: Plan, world: World):
        self.softmax = MarginSoftmax(ops, settings, world.rank, world.size, mixed_dtype(plan.mode))
        dtype, self.world, self.settings = wide_dtype(plan.mode), world, settings
        self.shard = ParameterShard(arch.num_classes, arch.embedding, settings.sample_rate, plan.seed, world, dtype)
        self.shards = {HEAD_WEIGHT: self.shard}
        self.statistics = {
            name: torch.full((), value, dtype=dtype, device=world.torch_device)
            for name, value in settings.statistics.items()
        }
        # Rows are sampled on the host, in every framework by the same generator.
        self.gather_on_host = HostGather(world.torch_device, world.size) if settings.sample_rate < 1 else None

    def begin(self, micro_batches: Sequence[Batch], step: int) -> list[Batch]:
        """Select the active rows of the class matrix.

        Returns:
            The micro-batches with `target_rows`: the active row of the class of each sample of all ranks, or -1.
        """
        if self.gather_on_host is not None:
            on_host = [self.gather_on_host(batch["label"]).numpy() for batch in micro_batches]
            self.shard.sample_rows(np.stack(on_host), step)
        labels = [all_gather(batch["label"], self.world.size) for batch in micro_batches]
        return [{**batch, "target_rows": self.shard.rows_of(x)} for batch, x in zip(micro_batches, labels, strict=True)]

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def total(self, output: torch.Tensor, target_rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(output.device.type, enabled=False):
            embeddings = output.to(self.shard.values.dtype)
            statistics = tuple(self.statistics.values())
            return _MarginLoss.apply(embeddings, self.shard.active_rows, target_rows, self.softmax, statistics)


class _MarginLoss(torch.autograd.Function):
    """(embeddings, active rows, target rows, softmax, statistics) -> sum of this rank's losses."""

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: torch.Tensor,
        weight: torch.Tensor,
        target_rows: torch.Tensor,
        softmax: MarginSoftmax,
        statistics: tuple[torch.Tensor, ...],
    ) -> torch.Tensor:
        loss, saved = softmax.forward(embeddings, weight, target_rows, statistics)
        ctx.softmax = softmax
        ctx.save_for_backward(*saved)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor):
        return *ctx.softmax.backward(ctx.saved_tensors, grad_output), None, None, None
