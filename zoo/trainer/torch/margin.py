"""Margin softmax (zoo.tasks.face.Margin) in PyTorch, with the class matrix sharded over ranks.

No rank ever holds the whole class matrix or its logits. The backward pass is written by hand: the exact transpose of
the forward pass with a single matrix of the logits' size, modified in place, and no copy of the weights. Where that
matrix would be large, it is computed in chunks of classes, and again in the backward pass. All in fp32, or in fp64 if
the weights are; under mixed precision the operands of the matrix products, but not the sums, are in 16 bits.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from zoo.losses import load_implementation
from zoo.tasks import face
from zoo.trainer.plan import Plan
from zoo.trainer.torch.dtypes import mixed_dtype, wide_dtype
from zoo.trainer.torch.host import HostGather
from zoo.trainer.torch.margin_logits import EPS, Logits, MarginFunction, gradients, margin_logits, own_targets
from zoo.trainer.torch.parallel import all_gather, all_reduce
from zoo.trainer.torch.shard import ParameterShard
from zoo.trainer.torch.world import World

CHUNK_ELEMENTS = 1 << 28  # logits that are held at once
Batch = dict[str, torch.Tensor]


class Margin:
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch: Any, plan: Plan, world: World):
        self.settings, self.product_dtype, self.world = settings, mixed_dtype(plan.mode), world
        self.loss = load_implementation(settings.loss, "torch").Loss(settings.loss)
        self.shard = ParameterShard(
            arch.num_classes, arch.embedding, settings.sample_rate, plan.seed, world, wide_dtype(plan.mode)
        )
        self.shards = {face.HEAD_WEIGHT: self.shard}
        self.statistics = {
            name: torch.full((), value, dtype=self.shard.values.dtype, device=world.torch_device)
            for name, value in settings.loss.statistics.items()
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

    def total(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        with torch.autocast(output.device.type, enabled=False):
            return _MarginLoss.apply(
                output.to(self.shard.values.dtype),
                self.shard.active_rows,
                batch["target_rows"],
                self.settings,
                self.loss,
                tuple(self.statistics.values()),
                self.product_dtype,
                self.world,
            )


class _MarginLoss(torch.autograd.Function):
    """(embeddings, weight, target_rows, settings, loss, statistics, dtype, world) -> sum of this rank's losses.

    Shapes: embeddings (N, d); weight, the active rows of the class matrix on this rank, (K, d); target_rows (M,), for
    the M samples of all ranks: the row of a sample's class in `weight`, or -1. All ranks must give their sums the same
    weight in the mean loss. `statistics`: of the objective, moved in place. `dtype`: of the operands of products; None
    for that of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: torch.Tensor,
        weight: torch.Tensor,
        target_rows: torch.Tensor,
        settings: face.Margin,
        loss: Any,
        statistics: Sequence[torch.Tensor],
        dtype: torch.dtype | None,
        world: World,
    ) -> torch.Tensor:
        ctx.world = world
        norms = embeddings.norm(dim=1, keepdim=True).clamp(min=EPS)
        units = all_gather(embeddings / norms, world.size)
        ctx.settings, ctx.dtype, ctx.chunks = settings, dtype, _chunks(len(weight), len(units))
        quality = loss.quality(all_gather(norms[:, 0], world.size), statistics) if loss.uses_norms else None
        ctx.margin = margin = partial(loss, quality=quality)
        kept: tuple[torch.Tensor | None, ...]
        if len(ctx.chunks) == 1:
            chunk = margin_logits(units, weight, target_rows, settings, margin, dtype)
            max_logits = all_reduce(chunk.logits.max(1).values, world.size, dist.ReduceOp.MAX)
            target_logits = own_targets(chunk.logits, target_rows)
            exps = chunk.logits.sub_(max_logits[:, None]).exp_()
            sum_exps, kept = exps.sum(1), tuple(chunk)
        else:
            own_max, sum_exps, target_logits = _reduce_chunks(
                ctx.chunks, units, weight, target_rows, settings, margin, dtype
            )
            max_logits = all_reduce(own_max.clone(), world.size, dist.ReduceOp.MAX)
            sum_exps, kept = sum_exps * (own_max - max_logits).exp(), (max_logits,)
        sum_exps, target_logits = all_reduce(torch.stack([sum_exps, target_logits]), world.size)
        ctx.save_for_backward(embeddings, weight, target_rows, norms, units, sum_exps, *kept)
        return _local_rows(max_logits + sum_exps.log() - target_logits, len(embeddings), world).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor):
        embeddings, weight, target_rows, norms, units, sum_exps, *kept = ctx.saved_tensors
        factor = grad_output * ctx.settings.scale
        if len(ctx.chunks) == 1:
            chunk = Logits(*kept)
            grad_units, grad_weight = gradients(chunk, sum_exps, units, weight, target_rows, factor, ctx.dtype)
        else:
            grad_units, grad_weight = torch.zeros_like(units), torch.empty_like(weight)
            for rows in ctx.chunks:
                part, targets = weight[rows], _rows_within(target_rows, rows)
                chunk = margin_logits(units, part, targets, ctx.settings, ctx.margin, ctx.dtype)
                chunk.logits.sub_(kept[0][:, None]).exp_()
                summand, grad_weight[rows] = gradients(chunk, sum_exps, units, part, targets, factor, ctx.dtype)
                grad_units += summand
        grad_units = _local_rows(all_reduce(grad_units, ctx.world.size), len(embeddings), ctx.world)
        local_units = _local_rows(units, len(embeddings), ctx.world)
        grad_embeddings = (grad_units - local_units * (local_units * grad_units).sum(1, keepdim=True)) / norms
        return grad_embeddings, grad_weight, *[None] * 6


def _chunks(classes: int, samples: int) -> list[slice]:
    """Return the rows of the class matrix in parts whose logits have CHUNK_ELEMENTS at most, but one class at least."""
    size = max(1, CHUNK_ELEMENTS // samples)
    return [slice(first, min(first + size, classes)) for first in range(0, classes, size)]


def _rows_within(target_rows: torch.Tensor, rows: slice) -> torch.Tensor:
    """Return target_rows counted from the first of `rows`; -1 outside of them."""
    is_within = (target_rows >= rows.start) & (target_rows < rows.stop)
    return torch.where(is_within, target_rows - rows.start, -1)


def _reduce_chunks(
    chunks: Sequence[slice],
    units: torch.Tensor,
    weight: torch.Tensor,
    target_rows: torch.Tensor,
    settings: face.Margin,
    margin: MarginFunction,
    dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each sample's largest logit, sum of exp(logit - the largest), and logit of its class, 0 if elsewhere."""
    max_logits = units.new_full((len(units),), float("-inf"))
    sum_exps, target_logits = torch.zeros_like(max_logits), torch.zeros_like(max_logits)
    for rows in chunks:
        targets = _rows_within(target_rows, rows)
        logits = margin_logits(units, weight[rows], targets, settings, margin, dtype).logits
        target_logits += own_targets(logits, targets)
        before, max_logits = max_logits, torch.maximum(max_logits, logits.max(1).values)
        sum_exps = sum_exps * (before - max_logits).exp() + logits.sub_(max_logits[:, None]).exp_().sum(1)
    return max_logits, sum_exps, target_logits


def _local_rows(x: torch.Tensor, count: int, world: World) -> torch.Tensor:
    """Return this rank's `count` rows of a tensor with the rows of all ranks."""
    return x[world.rank * count : (world.rank + 1) * count]
