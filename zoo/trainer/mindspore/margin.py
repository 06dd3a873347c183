"""Margin softmax (zoo.tasks.face.Margin) in MindSpore, with the class matrix sharded over ranks.

No rank ever holds the whole class matrix or its logits. The gradients are written by hand: the exact transpose of the
forward pass, computed directly after it, so that no matrix of the logits' size is kept for later. All in fp32, or
in fp64 if the weights are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.tasks import face
from zoo.trainer.mindspore.fp64 import constant
from zoo.trainer.mindspore.parallel import all_gather, all_reduce
from zoo.trainer.mindspore.shard import ParameterShard
from zoo.trainer.mindspore.world import World
from zoo.trainer.protocol import Plan

EPS = 1e-12  # smallest norm of a vector
Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Numbers:
    """Numbers of the settings as operands: in fp64 tensors, because MindSpore rounds Python's numbers to fp32."""

    m1: Any
    m2: Any
    m3: Any
    scale: Any
    interclass: Any
    min_sine: Any
    threshold_cosine: Any
    threshold_offset: Any


def numbers(settings: face.Margin, is_fp64: bool) -> Numbers:
    number = constant if is_fp64 else float
    return Numbers(
        number(settings.m1),
        number(settings.m2),
        number(settings.m3),
        number(settings.scale),
        None if settings.interclass is None else number(settings.interclass),
        number(face.MIN_SINE),
        number(face.threshold_cosine(settings.m2)),
        number(face.threshold_offset(settings.m2)),
    )


class Margin(nn.Cell):
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch: Any, plan: Plan, world: World):
        super().__init__()
        self.settings, self.on_cpu = settings, world.device_type == "cpu"
        self.rank, self.world_size = world.rank, world.size
        self.numbers = numbers(settings, plan.mode.is_fp64)
        self.dtype = mstype.float64 if plan.mode.is_fp64 else mstype.float32
        # Not called `shard`, which is a method of every Cell.
        self.parameter_shard = ParameterShard(
            face.HEAD_WEIGHT, arch.num_classes, arch.embedding, settings.sample_rate, plan, world
        )
        self.shards = {face.HEAD_WEIGHT: self.parameter_shard}
        self.targets = ("target_rows",) if settings.sample_rate == 1 else ("target_rows", "index")
        self.matmul_nt, self.matmul_tn = ops.MatMul(transpose_b=True), ops.MatMul(transpose_a=True)

    def begin(self, micro_batches: Sequence[Batch], step: int) -> list[Batch]:
        """Select the active rows of the class matrix.

        Returns:
            The micro-batches with `target_rows`: the active row of the class of each sample of all ranks, or -1; and
            `index`, the active rows, if they are sampled.
        """
        labels = ops.stack([all_gather(batch["label"], self.world_size) for batch in micro_batches])
        sampled = self.parameter_shard.sample_rows(labels, step)
        target_rows = sampled.pop("target_rows")
        return [{**batch, **sampled, "target_rows": target_rows[i]} for i, batch in enumerate(micro_batches)]

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def construct(self, embeddings: Tensor, target_rows: Tensor, index=None) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the sum of the losses of this rank's samples and the gradients.

        All ranks must give their sums the same weight in the mean loss.

        Args:
            embeddings: (N, d).
            target_rows: (M,), for the M samples of all ranks: the row of a sample's class among the K active rows
                of this rank, or -1.
            index: (K,), the active rows; None for all.

        Returns:
            The sum; its gradient with respect to the embeddings; the gradient of all ranks' sum with respect to the
            active rows.
        """
        settings, weight = self.settings, self.parameter_shard.active_rows(index)
        embeddings = embeddings.astype(self.dtype)
        norms = ops.maximum(ops.sqrt(ops.square(embeddings).sum(1, keepdims=True)), EPS)
        units = all_gather(embeddings / norms, self.world_size)
        inverse_norms = 1 / ops.maximum(ops.sqrt(ops.square(weight).sum(1)), EPS)
        cosines = self.matmul_nt(units, weight)  # (M, K), after the division by the norms:
        cosines = ops.clamp(cosines * self.expand(inverse_norms.reshape(1, -1), cosines), -1.0, 1.0)
        target_cosines, slopes = margin(_target_logits(cosines, target_rows), settings, self.numbers)
        is_filtered = None
        if settings.interclass is not None:
            is_filtered = cosines > self.numbers.interclass
            cosines = self.fill_zeros(cosines, is_filtered)
        logits = _scatter_targets(cosines, target_rows, target_cosines) * self.numbers.scale
        # The maximum of gathered ones, because MindSpore's all-reduce on CPUs can only add.
        local_max = all_gather(ops.max(logits, 1)[0], self.world_size).reshape(self.world_size, -1)
        max_logits = ops.max(local_max, 0)[0]
        target_logits = ops.select(target_rows >= 0, _target_logits(logits, target_rows), ops.zeros_like(max_logits))
        grad = ops.exp(logits - self.expand(max_logits.reshape(-1, 1), logits))
        sums = all_reduce(ops.stack((grad.sum(1), target_logits)), self.world_size)
        loss = self.local_rows(max_logits + ops.log(sums[0]) - sums[1], len(embeddings)).sum()

        # The gradient of the logits, then of the cosines, then of the products, each times the sample's sum of exps.
        inverse_sums = 1 / sums[0].reshape(-1, 1)
        grad_targets = (_target_logits(grad, target_rows) - sums[0]) * slopes
        if is_filtered is not None:
            grad = self.fill_zeros(grad, is_filtered)
        grad = _scatter_targets(grad, target_rows, grad_targets)
        grad = grad * self.expand((inverse_norms * self.numbers.scale).reshape(1, -1), grad)
        grad_units = all_reduce(ops.matmul(grad, weight) * inverse_sums, self.world_size)
        grad_units = self.local_rows(grad_units, len(embeddings))
        grad_weight = self.matmul_tn(grad, units * inverse_sums)
        radial = (grad_weight * weight).sum(1)
        radial = self.expand((radial * inverse_norms * inverse_norms).reshape(-1, 1), weight)
        grad_weight = grad_weight - weight * radial
        local_units = self.local_rows(units, len(embeddings))
        grad_embeddings = (grad_units - local_units * (local_units * grad_units).sum(1, keepdims=True)) / norms
        return loss, grad_embeddings, grad_weight

    def expand(self, x: Tensor, like: Tensor) -> Tensor:
        """Repeat a row or a column to the shape of a matrix; only on CPUs, where broadcasting needs four times that."""
        return ops.tile(x, (like.shape[0] // x.shape[0], like.shape[1] // x.shape[1])) if self.on_cpu else x

    def fill_zeros(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return x with zeros where the mask is set."""
        if self.dtype == mstype.float32:
            return ops.masked_fill(x, mask, 0.0)
        return ops.select(mask, ops.zeros_like(x), x)  # masked_fill rounds to fp32

    def local_rows(self, x: Tensor, count: int) -> Tensor:
        """Return this rank's `count` rows of a tensor with the rows of all ranks."""
        return x[self.rank * count : (self.rank + 1) * count]


def margin(cosine: Tensor, settings: face.Margin, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """Return the target's cosine with its margin, and the derivative.

    The derivative stays finite where that of the angle is not.
    """
    value, slope = cosine, ops.ones_like(cosine)
    if (settings.m1, settings.m2) != (1.0, 0.0):
        sine = ops.sqrt((1 - cosine) * (1 + cosine))
        angle = numbers.m1 * ops.atan2(sine, cosine) + numbers.m2
        value, slope = ops.cos(angle), numbers.m1 * ops.sin(angle) / ops.maximum(sine, numbers.min_sine)
    if settings.threshold and settings.m2:
        is_beyond = cosine <= numbers.threshold_cosine
        value = ops.select(is_beyond, cosine - numbers.threshold_offset, value)
        slope = ops.select(is_beyond, ops.ones_like(slope), slope)
    return value - numbers.m3, ops.ones_like(slope) if settings.straight_through else slope


def _target_logits(matrix: Tensor, target_rows: Tensor) -> Tensor:
    """Return the element of each sample's target class: (M, K) -> (M,). Undefined where target_rows is -1."""
    return ops.gather_d(matrix, 1, ops.maximum(target_rows, 0).reshape(-1, 1)).reshape(-1)


def _scatter_targets(matrix: Tensor, target_rows: Tensor, values: Tensor) -> Tensor:
    """Return the matrix with values (M,) as the elements of the target classes, where target_rows is not -1."""
    values = ops.select(target_rows >= 0, values, _target_logits(matrix, target_rows))
    return ops.tensor_scatter_elements(matrix, ops.maximum(target_rows, 0).reshape(-1, 1), values.reshape(-1, 1), 1)
