"""Margin softmax (zoo.tasks.face.Margin) in PaddlePaddle, with the class matrix sharded over ranks.

No rank ever holds the whole class matrix or its logits. The backward pass is written by hand: the exact transpose of
the forward pass with a single matrix of the logits' size, modified in place, and no copy of the weights. All in
fp32, or in fp64 if the weights are.
"""

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.distributed as dist
from paddle.autograd import PyLayer
from paddle.autograd.py_layer import once_differentiable

from zoo.tasks import face
from zoo.trainer.paddle.parallel import all_gather, all_reduce
from zoo.trainer.paddle.shard import ParameterShard
from zoo.trainer.paddle.world import World
from zoo.trainer.protocol import Plan

EPS = 1e-12  # smallest norm of a vector
CHUNK_SIZE = 1 << 12  # rows of the weights that are copied at once
Batch = dict[str, paddle.Tensor]


class Margin:
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch: Any, plan: Plan, world: World):
        self.settings = settings
        dtype = "float64" if plan.mode.is_fp64 else "float32"
        self.shard = ParameterShard(arch.num_classes, arch.embedding, settings.sample_rate, plan.seed, world, dtype)
        self.shards = {face.HEAD_WEIGHT: self.shard}

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
        return _MarginLoss.apply(embeddings, self.shard.active_rows, batch["target_rows"], self.settings)


class _MarginLoss(PyLayer):
    """(embeddings, weight, target_rows, settings) -> sum of the losses of this rank's samples.

    Shapes: embeddings (N, d); weight, the active rows of the class matrix on this rank, (K, d); target_rows (M,), for
    the M samples of all ranks: the row of a sample's class in `weight`, or -1. All ranks must give their sums the same
    weight in the mean loss.
    """

    @staticmethod
    def forward(
        ctx: Any, embeddings: paddle.Tensor, weight: paddle.Tensor, target_rows: paddle.Tensor, settings: face.Margin
    ) -> paddle.Tensor:
        norms = embeddings.square().sum(1, keepdim=True).sqrt().clip(min=EPS)
        units = all_gather(embeddings / norms)
        inverse_norms = 1 / weight.square().sum(1).sqrt().clip(min=EPS)
        products = paddle.matmul(units, weight, transpose_y=True)  # (M, K)
        cosines = products.multiply_(inverse_norms).clip_(-1, 1)
        target_cosines, slopes = margin(_target_logits(cosines, target_rows), settings)
        is_filtered = None
        if settings.interclass is not None:
            is_filtered = cosines > paddle.full(
                (), settings.interclass, cosines.dtype
            )  # of a number Paddle would make a matrix
            cosines.masked_fill_(is_filtered, 0.0)
        _scatter_targets(cosines, target_rows, target_cosines)
        logits = cosines.scale_(settings.scale)
        max_logits = all_reduce(logits.max(1), dist.ReduceOp.MAX)
        zeros = paddle.zeros_like(max_logits)
        target_logits = paddle.where(target_rows >= 0, _target_logits(logits, target_rows), zeros)
        exps = logits.subtract_(max_logits.unsqueeze(1)).exp_()
        sum_exps, target_logits = all_reduce(paddle.stack([_row_sums(exps), target_logits]))
        ctx.saved = embeddings, weight, target_rows, norms, units, inverse_norms, exps, is_filtered, slopes, sum_exps
        ctx.scale = settings.scale
        return _local_rows(max_logits + sum_exps.log() - target_logits, len(embeddings)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: paddle.Tensor):  # type: ignore[override]
        embeddings, weight, target_rows, norms, units, inverse_norms, exps, is_filtered, slopes, sum_exps = ctx.saved
        del ctx.saved
        # The gradient of the logits, then of the cosines, then of the products, in place to save memory.
        grad = exps.divide_(sum_exps.unsqueeze(1))
        grad_targets = (_target_logits(grad, target_rows) - 1) * slopes
        if is_filtered is not None:
            grad.masked_fill_(is_filtered, 0.0)
        _scatter_targets(grad, target_rows, grad_targets)
        grad.multiply_(inverse_norms * (grad_output * ctx.scale))
        grad_units = _local_rows(all_reduce(paddle.matmul(grad, weight)), len(embeddings))
        grad_weight = paddle.matmul(grad, units, transpose_x=True)
        for first in range(0, len(weight), CHUNK_SIZE):
            chunk = slice(first, first + CHUNK_SIZE)
            grad_rows, rows, inverses = grad_weight[chunk], weight[chunk], inverse_norms[chunk]  # views
            radial = (grad_rows * rows).sum(1) * inverses * inverses
            grad_rows.subtract_(rows * radial.unsqueeze(1))
        local_units = _local_rows(units, len(embeddings))
        grad_embeddings = (grad_units - local_units * (local_units * grad_units).sum(1, keepdim=True)) / norms
        return grad_embeddings, grad_weight, None


def margin(cosine: paddle.Tensor, settings: face.Margin) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the target's cosine with its margin, and the derivative.

    The derivative stays finite where that of the angle is not.
    """
    m1, m2, m3 = settings.m1, settings.m2, settings.m3
    value, slope = cosine, paddle.ones_like(cosine)
    if (m1, m2) != (1.0, 0.0):
        sine = ((1 - cosine) * (1 + cosine)).sqrt()
        angle = m1 * paddle.atan2(sine, cosine) + m2
        value, slope = paddle.cos(angle), m1 * paddle.sin(angle) / sine.clip(min=face.MIN_SINE)
    if settings.threshold and m2:
        is_beyond = cosine <= face.threshold_cosine(m2)
        value = paddle.where(is_beyond, cosine - face.threshold_offset(m2), value)
        slope = paddle.where(is_beyond, paddle.ones_like(slope), slope)
    return value - m3, paddle.ones_like(slope) if settings.straight_through else slope


def _target_logits(matrix: paddle.Tensor, target_rows: paddle.Tensor) -> paddle.Tensor:
    """Return the element of each sample's target class: (M, K) -> (M,). Undefined where target_rows is -1."""
    return paddle.take_along_axis(matrix, target_rows.clip(min=0).unsqueeze(1), 1, broadcast=False).squeeze(1)


def _scatter_targets(matrix: paddle.Tensor, target_rows: paddle.Tensor, values: paddle.Tensor) -> None:
    """Store values (M,) in the elements of the target classes, in place, where target_rows is not -1."""
    values = paddle.where(target_rows >= 0, values, _target_logits(matrix, target_rows))
    matrix.put_along_axis_(target_rows.clip(min=0).unsqueeze(1), values.unsqueeze(1), 1, broadcast=False)


def _row_sums(matrix: paddle.Tensor) -> paddle.Tensor:
    """Return the sums of rows: (M, K) -> (M,).

    On a CPU, Paddle adds a row's elements one after the other, and of millions in fp32 loses half a percent.
    """
    if not matrix.place.is_cpu_place():
        return matrix.sum(1)
    return paddle.stack([row.sum(dtype="float64") for row in matrix]).astype(matrix.dtype)


def _local_rows(x: paddle.Tensor, count: int) -> paddle.Tensor:
    """Return this rank's `count` rows of a tensor with the rows of all ranks."""
    rank = dist.get_rank()
    return x[rank * count : (rank + 1) * count]
