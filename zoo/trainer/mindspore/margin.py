"""Margin softmax (zoo.tasks.face.Margin) in MindSpore, with the class matrix sharded over ranks.

No rank ever holds the whole class matrix or its logits; of a large class matrix, it holds the logits of a chunk of
classes at a time. The gradients are written by hand: the exact transpose of the forward pass, computed directly after
it, so that no matrix of the logits' size is kept for later. All in fp32, or in fp64 if the weights are; in modes of 16
bits, the products have operands of 16 bits. Not run on a GPU so far.
"""

from collections.abc import Sequence
from typing import Any

from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.tasks import face
from zoo.trainer.mindspore.margin_logits import EPS, MarginLogits, own_targets
from zoo.trainer.mindspore.parallel import all_gather, all_reduce
from zoo.trainer.mindspore.scaler import scalar
from zoo.trainer.mindspore.shard import ParameterShard
from zoo.trainer.mindspore.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.state import statistic_key

CHUNK_ELEMENTS = 1 << 28  # logits that are held at once
Batch = dict[str, Tensor]


class Margin(nn.Cell):
    """Objective for embeddings (N, d) and `label` (N,); owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch: Any, plan: Plan, world: World):
        super().__init__()
        self.settings, self.rank, self.world_size = settings, world.rank, world.size
        self.head = MarginLogits(settings, plan, world.device_type == "cpu")
        self.dtype = mstype.float64 if plan.mode.is_fp64 else mstype.float32
        # Not called `shard`, which is a method of every Cell.
        self.parameter_shard = ParameterShard(
            face.HEAD_WEIGHT, arch.num_classes, arch.embedding, settings.sample_rate, plan, world
        )
        self.shards = {face.HEAD_WEIGHT: self.parameter_shard}
        self.statistics = {
            name: Parameter(scalar(value, self.dtype), statistic_key(name), requires_grad=False)
            for name, value in settings.loss.statistics.items()
        }
        self.moved = ParameterTuple(self.statistics.values())
        self.targets = ("target_rows",) if settings.sample_rate == 1 else ("target_rows", "index")

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
        weight = self.parameter_shard.active_rows(index)
        embeddings = embeddings.astype(self.dtype)
        norms = ops.maximum(ops.sqrt(ops.square(embeddings).sum(1, keepdims=True)), EPS)
        units = all_gather(embeddings / norms, self.world_size)
        quality = None
        if self.head.margin.uses_norms:
            quality = self.head.margin.quality(all_gather(norms.reshape(-1), self.world_size), self.moved)
        bounds = _chunks(weight.shape[0], units.shape[0])
        if len(bounds) == 1:
            loss, grad_units, grad_weight = self.whole(units, weight, target_rows, quality, len(embeddings))
        else:
            loss, grad_units, grad_weight = self.chunked(units, weight, target_rows, quality, len(embeddings), bounds)
        grad_units = self.local_rows(all_reduce(grad_units, self.world_size), len(embeddings))
        local_units = self.local_rows(units, len(embeddings))
        grad_embeddings = (grad_units - local_units * (local_units * grad_units).sum(1, keepdims=True)) / norms
        return loss, grad_embeddings, grad_weight

    def whole(
        self, units: Tensor, weight: Tensor, target_rows: Tensor, quality: Any, count: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss of this rank's `count` samples, and the gradients by units, of these classes, and weight."""
        logits, is_filtered, slopes, inverse_norms = self.head.logits(units, weight, target_rows, quality)
        max_logits = self.max_over_ranks(ops.max(logits, 1)[0])
        targets = own_targets(logits, target_rows)
        exps = ops.exp(logits - self.head.expand(max_logits.reshape(-1, 1), logits))
        sums = all_reduce(ops.stack((exps.sum(1), targets)), self.world_size)
        loss = self.local_rows(max_logits + ops.log(sums[0]) - sums[1], count).sum()
        gradients = self.head.gradients(exps, is_filtered, slopes, inverse_norms, sums[0], units, weight, target_rows)
        return (loss,) + gradients

    def chunked(
        self,
        units: Tensor,
        weight: Tensor,
        target_rows: Tensor,
        quality: Any,
        count: int,
        bounds: tuple[tuple[int, int], ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same with the logits of a chunk of classes at a time, computed once more for the gradients."""
        own_max: Any = None
        sum_exps: Any = None
        targets: Any = None
        for first, last in bounds:
            rows = _rows_within(target_rows, first, last)
            logits = self.head.logits(units, weight[first:last], rows, quality)[0]
            before, chunk_max, chunk_targets = own_max, ops.max(logits, 1)[0], own_targets(logits, rows)
            own_max = chunk_max if before is None else ops.maximum(before, chunk_max)
            chunk_sum = ops.exp(logits - self.head.expand(own_max.reshape(-1, 1), logits)).sum(1)
            sum_exps = chunk_sum if before is None else sum_exps * ops.exp(before - own_max) + chunk_sum
            targets = chunk_targets if before is None else targets + chunk_targets
        max_logits = self.max_over_ranks(own_max)
        sums = all_reduce(ops.stack((sum_exps * ops.exp(own_max - max_logits), targets)), self.world_size)
        loss = self.local_rows(max_logits + ops.log(sums[0]) - sums[1], count).sum()
        grad_units: Any = None
        grad_weight: Any = ()
        done = sums
        for first, last in bounds:
            # Else the compiler would take the logits from above, and so keep those of all chunks.
            units, part = ops.depend(units, done), ops.depend(weight, done)[first:last]
            rows = _rows_within(target_rows, first, last)
            logits, is_filtered, slopes, inverse_norms = self.head.logits(units, part, rows, quality)
            exps = ops.exp(logits - self.head.expand(max_logits.reshape(-1, 1), logits))
            summand, of_rows = self.head.gradients(exps, is_filtered, slopes, inverse_norms, sums[0], units, part, rows)
            done = grad_units = summand if grad_units is None else grad_units + summand
            grad_weight = grad_weight + (of_rows,)
        return loss, grad_units, ops.concat(grad_weight)

    def max_over_ranks(self, x: Tensor) -> Tensor:
        """Return the maximum of x (M,) over ranks: of gathered ones, because all-reduce on CPUs can only add."""
        return ops.max(all_gather(x, self.world_size).reshape(self.world_size, -1), 0)[0]

    def local_rows(self, x: Tensor, count: int) -> Tensor:
        """Return this rank's `count` rows of a tensor with the rows of all ranks."""
        return x[self.rank * count : (self.rank + 1) * count]


@ops.constexpr
def _chunks(classes: int, samples: int) -> tuple[tuple[int, int], ...]:
    """Return the rows of the class matrix in parts whose logits have CHUNK_ELEMENTS at most, but one class at least."""
    size = max(1, CHUNK_ELEMENTS // samples)
    return tuple((first, min(first + size, classes)) for first in range(0, classes, size))


def _rows_within(target_rows: Tensor, first: int, last: int) -> Tensor:
    """Return target_rows counted from `first`; -1 where they are not in [first, last)."""
    is_within = ops.logical_and(target_rows >= first, target_rows < last)
    return ops.select(is_within, target_rows - first, ops.full_like(target_rows, -1))
