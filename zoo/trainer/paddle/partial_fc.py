"""The class matrix of a face model in PaddlePaddle, sharded over ranks, and margin softmax with it.

The loss and its gradients are in zoo/trainer/margin.py. With Partial FC, an update uses some of the rows.
"""

from collections.abc import Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer
from paddle.autograd.py_layer import once_differentiable

from zoo.losses import face
from zoo.tasks.face import HEAD_WEIGHT
from zoo.trainer import sharding
from zoo.trainer.margin import MarginSoftmax
from zoo.trainer.paddle import ops
from zoo.trainer.paddle.parallel import all_gather
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Plan

Batch = dict[str, paddle.Tensor]


class ParameterShard:
    """Rows [first, last) of a parameter (num_rows, width) that is sharded over ranks.

    Args:
        sample_rate: fraction of the rows that an update uses (Partial FC).

    Attributes:
        active_rows: the rows that the current update uses, with its gradient; `values` unless they are sampled.
        index: int64, sorted: which rows are active; None for all.
    """

    def __init__(self, num_rows: int, width: int, sample_rate: float, seed: int, world: World, dtype: Any = "float32"):
        self.num_rows = num_rows
        self.sample_rate = sample_rate
        self.seed = seed
        self.rank = world.rank
        self.first, self.last = sharding.row_range(num_rows, world.rank, world.size)
        self.values = paddle.zeros((self.last - self.first, width), dtype)
        self.values.stop_gradient = sample_rate < 1
        self.index: paddle.Tensor | None = None
        self.active_rows = self.values

    def sample_rows(self, classes: paddle.Tensor, step: int) -> paddle.Tensor:
        """Select the rows of an update.

        Args:
            classes: int64, any shape: of all samples of the update, on all ranks.

        Returns:
            The active row of each class; -1 for a class of another rank.
        """
        self.active_rows.clear_gradient(False)  # frees the memory; with True it would be filled with zeros
        is_local = (classes >= self.first) & (classes < self.last)
        rows = ops.where(is_local, classes - self.first, -1)
        if self.sample_rate == 1:
            return rows
        host_rows = rows.numpy()  # waits for the device: rows are sampled on the host
        index = sharding.choose_active_rows(host_rows, len(self.values), self.sample_rate, self.seed, self.rank, step)
        self.index = paddle.to_tensor(index, place=classes.place)
        self.active_rows = paddle.gather(self.values, self.index)
        self.active_rows.stop_gradient = False
        return ops.where(is_local, paddle.searchsorted(self.index, rows), -1)


class Margin:
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts, targets = True, ("target_rows",)

    def __init__(self, settings: face.Settings, arch: Any, plan: Plan, world: World):
        # Paddle's product of 16-bit matrices is rounded to their type. So it is fp16 in bf16 modes as well: unit
        # vectors and scaled probabilities are within its range, and bf16 would round cosines to 1/256.
        product_dtype = "float16" if plan.mode.is_mixed else None
        self.softmax = MarginSoftmax(ops, settings, world.rank, world.size, product_dtype)
        self.settings, dtype = settings, "float64" if plan.mode.is_fp64 else "float32"
        self.shard = ParameterShard(arch.num_classes, arch.embedding, settings.sample_rate, plan.seed, world, dtype)
        self.shards = {HEAD_WEIGHT: self.shard}
        self.statistics = {name: ops.number(value, dtype) for name, value in settings.statistics.items()}

    def begin(self, micro_batches: Sequence[Batch], step: int) -> list[Batch]:
        """Select the active rows of the class matrix.

        Returns:
            The micro-batches with `target_rows`: the active row of the class of each sample of all ranks, or -1.
        """
        labels = paddle.stack([all_gather(batch["label"]) for batch in micro_batches])
        target_rows = self.shard.sample_rows(labels, step)
        return [{**batch, "target_rows": rows} for batch, rows in zip(micro_batches, target_rows)]

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def total(self, output: paddle.Tensor, target_rows: paddle.Tensor) -> paddle.Tensor:
        embeddings, statistics = output.astype(self.shard.values.dtype), tuple(self.statistics.values())
        return _MarginLoss.apply(embeddings, self.shard.active_rows, target_rows, self.softmax, statistics)


class _MarginLoss(PyLayer):
    """(embeddings, active rows, target rows, softmax, statistics) -> sum of this rank's losses."""

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: paddle.Tensor,
        weight: paddle.Tensor,
        target_rows: paddle.Tensor,
        softmax: MarginSoftmax,
        statistics: tuple[paddle.Tensor, ...],
    ) -> paddle.Tensor:
        loss, ctx.saved = softmax.forward(embeddings, weight, target_rows, statistics)
        ctx.softmax = softmax
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: paddle.Tensor):  # type: ignore[override]
        saved = ctx.saved
        del ctx.saved
        return *ctx.softmax.backward(saved, grad_output), None
