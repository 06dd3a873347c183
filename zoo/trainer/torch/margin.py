"""Margin softmax (zoo.tasks.face.Margin) in PyTorch, with the class matrix sharded over ranks.

No rank ever holds the whole class matrix or its logits. The backward pass is written by hand: the exact transpose of
the forward pass with a single matrix of the logits' size, modified in place, and no copy of the weights. All in
fp32, or in fp64 if the weights are.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from zoo.tasks import face
from zoo.trainer.protocol import Plan
from zoo.trainer.torch.parallel import all_gather, all_reduce
from zoo.trainer.torch.shard import ParameterShard
from zoo.trainer.torch.world import World

EPS = 1e-12  # smallest norm of a vector
Batch = dict[str, torch.Tensor]


class Margin:
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch: Any, plan: Plan, world: World):
        self.settings = settings
        dtype = torch.float64 if plan.mode.is_fp64 else torch.float32
        self.shard = ParameterShard(arch.num_classes, arch.embedding, settings.sample_rate, plan.seed, world, dtype)
        self.shards = {face.HEAD_WEIGHT: self.shard}

    def begin(self, micro_batches: Sequence[Batch], step: int) -> list[Batch]:
        """Select the active rows of the class matrix.

        Returns:
            The micro-batches with `target_rows`: the active row of the class of each sample of all ranks, or -1.
        """
        labels = torch.stack([all_gather(batch["label"]) for batch in micro_batches])
        target_rows = self.shard.sample_rows(labels, step)
        return [{**batch, "target_rows": rows} for batch, rows in zip(micro_batches, target_rows)]

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def total(self, output: torch.Tensor, batch: Batch) -> torch.Tensor:
        with torch.autocast(output.device.type, enabled=False):
            embeddings = output.to(self.shard.values.dtype)
            return _MarginLoss.apply(embeddings, self.shard.active_rows, batch["target_rows"], self.settings)


class _MarginLoss(torch.autograd.Function):
    """(embeddings, weight, target_rows, settings) -> sum of the losses of this rank's samples.

    Shapes: embeddings (N, d); weight, the active rows of the class matrix on this rank, (K, d); target_rows (M,), for
    the M samples of all ranks: the row of a sample's class in `weight`, or -1. All ranks must give their sums the same
    weight in the mean loss.
    """

    @staticmethod
    def forward(
        ctx: Any, embeddings: torch.Tensor, weight: torch.Tensor, target_rows: torch.Tensor, settings: face.Margin
    ) -> torch.Tensor:
        norms = embeddings.norm(dim=1, keepdim=True).clamp(min=EPS)
        units = all_gather(embeddings / norms)
        inverse_norms = 1 / weight.norm(dim=1).clamp(min=EPS)
        cosines = (units @ weight.T).mul_(inverse_norms).clamp_(-1, 1)  # (M, K)
        target_cosines, slopes = margin(_target_logits(cosines, target_rows), settings)
        is_filtered = None
        if settings.interclass is not None:
            is_filtered = cosines > settings.interclass
            cosines.masked_fill_(is_filtered, 0)
        _scatter_targets(cosines, target_rows, target_cosines)
        logits = cosines.mul_(settings.scale)
        max_logits = all_reduce(logits.max(1).values, dist.ReduceOp.MAX)
        target_logits = torch.where(target_rows >= 0, _target_logits(logits, target_rows), 0)
        exps = logits.sub_(max_logits[:, None]).exp_()
        sum_exps, target_logits = all_reduce(torch.stack([exps.sum(1), target_logits]))
        ctx.save_for_backward(
            embeddings, weight, target_rows, norms, units, inverse_norms, exps, is_filtered, slopes, sum_exps
        )
        ctx.scale = settings.scale
        return _local_rows(max_logits + sum_exps.log() - target_logits, len(embeddings)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor):
        embeddings, weight, target_rows, norms, units, inverse_norms, exps, is_filtered, slopes, sum_exps = (
            ctx.saved_tensors
        )
        # The gradient of the logits, then of the cosines, then of the products, in place to save memory.
        grad = exps.div_(sum_exps[:, None])
        grad_targets = (_target_logits(grad, target_rows) - 1) * slopes
        if is_filtered is not None:
            grad.masked_fill_(is_filtered, 0)
        _scatter_targets(grad, target_rows, grad_targets)
        grad.mul_(grad_output * ctx.scale).mul_(inverse_norms)
        grad_units = _local_rows(all_reduce(grad @ weight), len(embeddings))
        grad_weight = grad.T @ units
        radial = torch.einsum("kd,kd->k", grad_weight, weight)
        grad_weight.addcmul_(weight, (-radial * inverse_norms * inverse_norms)[:, None])
        local_units = _local_rows(units, len(embeddings))
        grad_embeddings = (grad_units - local_units * (local_units * grad_units).sum(1, keepdim=True)) / norms
        return grad_embeddings, grad_weight, None, None


def margin(cosine: torch.Tensor, settings: face.Margin) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the target's cosine with its margin, and the derivative.

    The derivative stays finite where that of the angle is not.
    """
    m1, m2, m3 = settings.m1, settings.m2, settings.m3
    value, slope = cosine, torch.ones_like(cosine)
    if (m1, m2) != (1.0, 0.0):
        sine = ((1 - cosine) * (1 + cosine)).sqrt()
        angle = m1 * torch.atan2(sine, cosine) + m2
        value, slope = torch.cos(angle), m1 * torch.sin(angle) / sine.clamp(min=face.MIN_SINE)
    if settings.threshold and m2:
        is_beyond = cosine <= face.threshold_cosine(m2)
        value = torch.where(is_beyond, cosine - face.threshold_offset(m2), value)
        slope = torch.where(is_beyond, torch.ones_like(slope), slope)
    return value - m3, torch.ones_like(slope) if settings.straight_through else slope


def _target_logits(matrix: torch.Tensor, target_rows: torch.Tensor) -> torch.Tensor:
    """Return the element of each sample's target class: (M, K) -> (M,). Undefined where target_rows is -1."""
    return matrix.gather(1, target_rows.clamp(min=0)[:, None]).squeeze(1)


def _scatter_targets(matrix: torch.Tensor, target_rows: torch.Tensor, values: torch.Tensor) -> None:
    """Store values (M,) in the elements of the target classes, in place, where target_rows is not -1."""
    values = torch.where(target_rows >= 0, values, _target_logits(matrix, target_rows))
    matrix.scatter_(1, target_rows.clamp(min=0)[:, None], values[:, None])


def _local_rows(x: torch.Tensor, count: int) -> torch.Tensor:
    """Return this rank's `count` rows of a tensor with the rows of all ranks."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    return x[rank * count : (rank + 1) * count]
