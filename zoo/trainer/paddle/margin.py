"""zoo.tasks.face.Margin in PaddlePaddle: softmax over classes that are split over ranks, with a margin for one's own.

No rank ever holds the whole class matrix or its logits. The backward pass is written out: the exact transpose of the
forward one, with a single matrix of logits' size, which all is done to in place, and no copy of the weights. All in
fp32.
"""

from collections.abc import Sequence
from typing import Any

import paddle
import paddle.distributed as dist
from paddle.autograd import PyLayer
from paddle.autograd.py_layer import once_differentiable

from zoo.tasks import face
from zoo.trainer.paddle.shard import ParameterShard, gather, reduce

EPS = 1e-12  # of a vector's length
CHUNK = 1 << 12  # rows of the weights, where a copy is needed


class Margin:
    """Objective: embeddings (N, d), `label` (N,). Owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch, plan, world):
        self.settings = settings
        self.shard = ParameterShard(arch.num_classes, arch.embedding, settings.sample_rate, plan.seed, world)
        self.shards = {face.HEAD_WEIGHT: self.shard}

    def count(self, batch: dict[str, paddle.Tensor]) -> int:
        return len(batch["label"])

    def begin(self, parts: Sequence[dict[str, paddle.Tensor]], number: int) -> list[dict[str, paddle.Tensor]]:
        """Fix the rows that update `number` uses; the parts with `row`: where the classes of all ranks' samples lie."""
        rows = self.shard.sample_rows(paddle.stack([gather(part["label"]) for part in parts]), number)
        return [{**part, "row": row} for part, row in zip(parts, rows)]

    def total(self, output: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        return _Loss.apply(output.astype("float32"), self.shard.active_rows, batch["row"], self.settings)


class _Loss(PyLayer):
    """The sum of the losses of this rank's samples.

    x: embeddings (N, d). weight: rows (K, d) of this rank. row: (M,) of all ranks' M samples, where a sample's class
    lies in `weight`, else -1. All ranks must weigh their sums alike, as shares of one mean are.
    """

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, weight: paddle.Tensor, row: paddle.Tensor, settings: face.Margin):
        length = x.square().sum(1, keepdim=True).sqrt().clip(min=EPS)
        units = gather(x / length)
        inverse = 1 / weight.square().sum(1).sqrt().clip(min=EPS)
        logits = paddle.matmul(units, weight, transpose_y=True)  # (M, K)
        cosines = logits.multiply_(inverse).clip_(-1, 1)
        value, slope = margin(_target_logits(cosines, row), settings)
        hidden = None
        if settings.interclass is not None:
            hidden = cosines > paddle.full((), settings.interclass)  # with a number Paddle fills a matrix of it
            cosines.masked_fill_(hidden, 0.0)
        _scatter_targets(cosines, row, value)
        logits = cosines.scale_(settings.scale)
        largest = reduce(logits.max(1), dist.ReduceOp.MAX)
        target = paddle.where(row >= 0, _target_logits(logits, row), paddle.zeros_like(largest))
        powers = logits.subtract_(largest.unsqueeze(1)).exp_()
        sums = reduce(paddle.stack([_row_sums(powers), target]))
        ctx.kept = x, weight, row, length, units, inverse, powers, hidden, slope, sums[0]
        ctx.scale = settings.scale
        return _local_rows(largest + sums[0].log() - sums[1], len(x)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: paddle.Tensor):
        x, weight, row, length, units, inverse, powers, hidden, slope, whole = ctx.kept
        del ctx.kept
        # Of the logits, then of the cosines, then of the products with the rows: in place, for memory's sake.
        each = powers.divide_(whole.unsqueeze(1))
        own = (_target_logits(each, row) - 1) * slope
        if hidden is not None:
            each.masked_fill_(hidden, 0.0)
        _scatter_targets(each, row, own)
        each.multiply_(inverse * (gradient * ctx.scale))
        to_units = _local_rows(reduce(paddle.matmul(each, weight)), len(x))
        to_weight = paddle.matmul(each, units, transpose_x=True)
        for first in range(0, len(weight), CHUNK):
            part, rows, less = (tensor[first : first + CHUNK] for tensor in (to_weight, weight, inverse))  # views
            along = (part * rows).sum(1) * less * less
            part.subtract_(rows * along.unsqueeze(1))
        mine = _local_rows(units, len(x))
        to_x = (to_units - mine * (mine * to_units).sum(1, keepdim=True)) / length
        return to_x, to_weight, None


def margin(cosine: paddle.Tensor, settings: face.Margin) -> tuple[paddle.Tensor, paddle.Tensor]:
    """The target's cosine with its margin, and its derivative, which stays finite where that of the angle is not."""
    m1, m2, m3 = settings.m1, settings.m2, settings.m3
    value, slope = cosine, paddle.ones_like(cosine)
    if (m1, m2) != (1.0, 0.0):
        sine = ((1 - cosine) * (1 + cosine)).sqrt()
        angle = m1 * paddle.atan2(sine, cosine) + m2
        value, slope = paddle.cos(angle), m1 * paddle.sin(angle) / sine.clip(min=face.MIN_SINE)
    if settings.threshold and m2:
        beyond = cosine <= face.threshold_cosine(m2)
        value = paddle.where(beyond, cosine - face.threshold_offset(m2), value)
        slope = paddle.where(beyond, paddle.ones_like(slope), slope)
    return value - m3, paddle.ones_like(slope) if settings.straight_through else slope


def _target_logits(matrix: paddle.Tensor, row: paddle.Tensor) -> paddle.Tensor:
    """(M,): of each sample what belongs to its own class; anything, where the class is not here."""
    return paddle.take_along_axis(matrix, row.clip(min=0).unsqueeze(1), 1, broadcast=False).squeeze(1)


def _scatter_targets(matrix: paddle.Tensor, row: paddle.Tensor, values: paddle.Tensor) -> None:
    """Put values (M,) in the places of the own classes that are here."""
    values = paddle.where(row >= 0, values, _target_logits(matrix, row))
    matrix.put_along_axis_(row.clip(min=0).unsqueeze(1), values.unsqueeze(1), 1, broadcast=False)


def _row_sums(matrix: paddle.Tensor) -> paddle.Tensor:
    """(M,). On a CPU Paddle adds a row's numbers one to the other, and of millions in fp32 loses half a percent."""
    if not matrix.place.is_cpu_place():
        return matrix.sum(1)
    return paddle.stack([row.sum(dtype="float64") for row in matrix]).astype("float32")


def _local_rows(x: paddle.Tensor, count: int) -> paddle.Tensor:
    """This rank's `count` rows of those of all ranks."""
    rank = dist.get_rank()
    return x[rank * count : (rank + 1) * count]
