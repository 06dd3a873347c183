"""Margin softmax (zoo.tasks.face.Margin) in PaddlePaddle, with the class matrix sharded over ranks.

No rank ever holds the whole class matrix or its logits. The backward pass is written by hand: the exact transpose of
the forward pass with a single matrix of the logits' size, modified in place, and no copy of the weights. Where that
matrix would be large, it is computed in chunks of classes, and again in the backward pass. All in fp32, or in fp64 if
the weights are; under mixed precision the matrix products, but not their sums, are in fp16.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import paddle
import paddle.distributed as dist
from paddle.autograd import PyLayer
from paddle.autograd.py_layer import once_differentiable

from zoo.losses import load_implementation
from zoo.tasks import face
from zoo.trainer.paddle.margin_logits import (
    EPS,
    Logits,
    MarginFunction,
    gradients,
    margin_logits,
    own_targets,
    row_sums,
)
from zoo.trainer.paddle.parallel import all_gather, all_reduce
from zoo.trainer.paddle.shard import ParameterShard
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Plan

CHUNK_ELEMENTS = 1 << 28  # logits that are held at once
Batch = dict[str, paddle.Tensor]


class Margin:
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch: Any, plan: Plan, world: World):
        self.settings, self.in_fp16 = settings, plan.mode.is_mixed
        self.loss = load_implementation(settings.loss, "paddle").Loss(settings.loss)
        dtype: Any = "float64" if plan.mode.is_fp64 else "float32"
        self.shard = ParameterShard(arch.num_classes, arch.embedding, settings.sample_rate, plan.seed, world, dtype)
        self.shards = {face.HEAD_WEIGHT: self.shard}
        self.statistics = {name: paddle.full((), value, dtype) for name, value in settings.loss.statistics.items()}

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

    def total(self, output: paddle.Tensor, batch: Batch) -> paddle.Tensor:
        embeddings = output.astype(self.shard.values.dtype)
        weight, rows = self.shard.active_rows, batch["target_rows"]
        statistics = tuple(self.statistics.values())
        return _MarginLoss.apply(embeddings, weight, rows, self.settings, self.loss, statistics, self.in_fp16)


class _MarginLoss(PyLayer):
    """(embeddings, weight, target_rows, settings, loss, statistics, in_fp16) -> sum of this rank's losses.

    Shapes: embeddings (N, d); weight, the active rows of the class matrix on this rank, (K, d); target_rows (M,), for
    the M samples of all ranks: the row of a sample's class in `weight`, or -1. All ranks must give their sums the same
    weight in the mean loss. `statistics`: of the objective, moved in place. `in_fp16`: compute products in fp16.
    """

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: paddle.Tensor,
        weight: paddle.Tensor,
        target_rows: paddle.Tensor,
        settings: face.Margin,
        loss: Any,
        statistics: Sequence[paddle.Tensor],
        in_fp16: bool,
    ) -> paddle.Tensor:
        norms = embeddings.square().sum(1, keepdim=True).sqrt().clip(min=EPS)
        units = all_gather(embeddings / norms)
        ctx.settings, ctx.in_fp16, ctx.chunks = settings, in_fp16, _chunks(len(weight), len(units))
        quality = loss.quality(all_gather(norms).squeeze(1), statistics) if loss.uses_norms else None
        ctx.margin = margin = partial(loss, quality=quality)
        kept: tuple[Any, ...]
        if len(ctx.chunks) == 1:
            chunk = margin_logits(units, weight, target_rows, settings, margin, in_fp16)
            max_logits = all_reduce(chunk.logits.max(1), dist.ReduceOp.MAX)
            target_logits = own_targets(chunk.logits, target_rows)
            exps = chunk.logits.subtract_(max_logits.unsqueeze(1)).exp_()
            sum_exps, kept = row_sums(exps), tuple(chunk)
        else:
            own_max, sum_exps, target_logits = _reduce_chunks(
                ctx.chunks, units, weight, target_rows, settings, margin, in_fp16
            )
            max_logits = all_reduce(own_max.clone(), dist.ReduceOp.MAX)
            sum_exps, kept = sum_exps * (own_max - max_logits).exp(), (max_logits,)
        sum_exps, target_logits = all_reduce(paddle.stack([sum_exps, target_logits]))
        ctx.saved = embeddings, weight, target_rows, norms, units, sum_exps, kept
        return _local_rows(max_logits + sum_exps.log() - target_logits, len(embeddings)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: paddle.Tensor):  # type: ignore[override]
        embeddings, weight, target_rows, norms, units, sum_exps, kept = ctx.saved
        del ctx.saved
        factor = grad_output * ctx.settings.scale
        if len(ctx.chunks) == 1:
            chunk = Logits(*kept)
            grad_units, grad_weight = gradients(chunk, sum_exps, units, weight, target_rows, factor, ctx.in_fp16)
        else:
            grad_units, grad_weight = paddle.zeros_like(units), paddle.empty_like(weight)
            for rows in ctx.chunks:
                part, targets = weight[rows], _rows_within(target_rows, rows)
                chunk = margin_logits(units, part, targets, ctx.settings, ctx.margin, ctx.in_fp16)
                chunk.logits.subtract_(kept[0].unsqueeze(1)).exp_()
                summand, grad_weight[rows] = gradients(chunk, sum_exps, units, part, targets, factor, ctx.in_fp16)
                grad_units.add_(summand)
        grad_units = _local_rows(all_reduce(grad_units), len(embeddings))
        local_units = _local_rows(units, len(embeddings))
        grad_embeddings = (grad_units - local_units * (local_units * grad_units).sum(1, keepdim=True)) / norms
        return grad_embeddings, grad_weight, None


def _chunks(classes: int, samples: int) -> list[slice]:
    """Return the rows of the class matrix in parts whose logits have CHUNK_ELEMENTS at most, but one class at least."""
    size = max(1, CHUNK_ELEMENTS // samples)
    return [slice(first, min(first + size, classes)) for first in range(0, classes, size)]


def _rows_within(target_rows: paddle.Tensor, rows: slice) -> paddle.Tensor:
    """Return target_rows counted from the first of `rows`; -1 outside of them."""
    is_within = (target_rows >= rows.start) & (target_rows < rows.stop)
    return paddle.where(is_within, target_rows - rows.start, paddle.full_like(target_rows, -1))


def _reduce_chunks(
    chunks: Sequence[slice],
    units: paddle.Tensor,
    weight: paddle.Tensor,
    target_rows: paddle.Tensor,
    settings: face.Margin,
    margin: MarginFunction,
    in_fp16: bool,
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Return each sample's largest logit, sum of exp(logit - the largest), and logit of its class, 0 if elsewhere."""
    max_logits = paddle.full((len(units),), float("-inf"), units.dtype)
    sum_exps, target_logits = paddle.zeros_like(max_logits), paddle.zeros_like(max_logits)
    for rows in chunks:
        targets = _rows_within(target_rows, rows)
        logits = margin_logits(units, weight[rows], targets, settings, margin, in_fp16).logits
        target_logits = target_logits + own_targets(logits, targets)
        before, max_logits = max_logits, paddle.maximum(max_logits, logits.max(1))
        exps = logits.subtract_(max_logits.unsqueeze(1)).exp_()
        sum_exps = sum_exps * (before - max_logits).exp() + row_sums(exps)
    return max_logits, sum_exps, target_logits


def _local_rows(x: paddle.Tensor, count: int) -> paddle.Tensor:
    """Return this rank's `count` rows of a tensor with the rows of all ranks."""
    rank = dist.get_rank()
    return x[rank * count : (rank + 1) * count]
