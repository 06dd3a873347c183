"""zoo.tasks.face.Margin in PyTorch: softmax over classes that are split over ranks, with a margin for the own class.

No rank ever holds the whole class matrix or its logits. The backward pass is written out: the exact transpose of the
forward one, with a single matrix of logits' size, which all is done to in place, and no copy of the weights. All in
fp32.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from zoo.tasks import face
from zoo.trainer.torch.shard import ParameterShard, gather, reduce

EPS = 1e-12  # of a vector's length


class Margin:
    """Objective: embeddings (N, d), `label` (N,). Owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch, plan, world):
        self.settings = settings
        self.shard = ParameterShard(arch.num_classes, arch.embedding, settings.sample_rate, plan.seed, world)
        self.shards = {face.HEAD_WEIGHT: self.shard}

    def count(self, batch: dict[str, torch.Tensor]) -> int:
        return len(batch["label"])

    def begin(self, parts: Sequence[dict[str, torch.Tensor]], number: int) -> list[dict[str, torch.Tensor]]:
        """Fix the rows that update `number` uses; the parts with `row`: where the classes of all ranks' samples lie."""
        rows = self.shard.sample_rows(torch.stack([gather(part["label"]) for part in parts]), number)
        return [{**part, "row": row} for part, row in zip(parts, rows)]

    def total(self, output: torch.Tensor, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.autocast(output.device.type, enabled=False):
            return _Loss.apply(output.float(), self.shard.active_rows, batch["row"], self.settings)


class _Loss(torch.autograd.Function):
    """The sum of the losses of this rank's samples.

    x: embeddings (N, d). weight: rows (K, d) of this rank. row: (M,) of all ranks' M samples, where a sample's class
    lies in `weight`, else -1. All ranks must weigh their sums alike, as shares of one mean are.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, row: torch.Tensor, settings: face.Margin):
        length = x.norm(dim=1, keepdim=True).clamp(min=EPS)
        units = gather(x / length)
        inverse = 1 / weight.norm(dim=1).clamp(min=EPS)
        cosines = (units @ weight.T).mul_(inverse).clamp_(-1, 1)  # (M, K)
        value, slope = margin(_target_logits(cosines, row), settings)
        hidden = None
        if settings.interclass is not None:
            hidden = cosines > settings.interclass
            cosines.masked_fill_(hidden, 0)
        _scatter_targets(cosines, row, value)
        logits = cosines.mul_(settings.scale)
        largest = reduce(logits.max(1).values, dist.ReduceOp.MAX)
        target = torch.where(row >= 0, _target_logits(logits, row), 0)
        powers = logits.sub_(largest[:, None]).exp_()
        sums = reduce(torch.stack([powers.sum(1), target]))
        ctx.save_for_backward(x, weight, row, length, units, inverse, powers, hidden, slope, sums[0])
        ctx.scale = settings.scale
        return _local_rows(largest + sums[0].log() - sums[1], len(x)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor):
        x, weight, row, length, units, inverse, powers, hidden, slope, whole = ctx.saved_tensors
        # Of the logits, then of the cosines, then of the products with the rows: in place, for memory's sake.
        each = powers.div_(whole[:, None])
        own = (_target_logits(each, row) - 1) * slope
        if hidden is not None:
            each.masked_fill_(hidden, 0)
        _scatter_targets(each, row, own)
        each.mul_(gradient * ctx.scale).mul_(inverse)
        to_units = _local_rows(reduce(each @ weight), len(x))
        to_weight = each.T @ units
        along = torch.einsum("kd,kd->k", to_weight, weight)
        to_weight.addcmul_(weight, (-along * inverse * inverse)[:, None])
        mine = _local_rows(units, len(x))
        to_x = (to_units - mine * (mine * to_units).sum(1, keepdim=True)) / length
        return to_x, to_weight, None, None


def margin(cosine: torch.Tensor, settings: face.Margin) -> tuple[torch.Tensor, torch.Tensor]:
    """The target's cosine with its margin, and its derivative, which stays finite where that of the angle is not."""
    m1, m2, m3 = settings.m1, settings.m2, settings.m3
    value, slope = cosine, torch.ones_like(cosine)
    if (m1, m2) != (1.0, 0.0):
        sine = ((1 - cosine) * (1 + cosine)).sqrt()
        angle = m1 * torch.atan2(sine, cosine) + m2
        value, slope = torch.cos(angle), m1 * torch.sin(angle) / sine.clamp(min=face.MIN_SINE)
    if settings.threshold and m2:
        beyond = cosine <= face.threshold_cosine(m2)
        value = torch.where(beyond, cosine - face.threshold_offset(m2), value)
        slope = torch.where(beyond, torch.ones_like(slope), slope)
    return value - m3, torch.ones_like(slope) if settings.straight_through else slope


def _target_logits(matrix: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """(M,): of each sample what belongs to its own class; anything, where the class is not here."""
    return matrix.gather(1, row.clamp(min=0)[:, None]).squeeze(1)


def _scatter_targets(matrix: torch.Tensor, row: torch.Tensor, values: torch.Tensor) -> None:
    """Put values (M,) in the places of the own classes that are here."""
    matrix.scatter_(1, row.clamp(min=0)[:, None], torch.where(row >= 0, values, _target_logits(matrix, row))[:, None])


def _local_rows(x: torch.Tensor, count: int) -> torch.Tensor:
    """This rank's `count` rows of those of all ranks."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    return x[rank * count : (rank + 1) * count]
