"""zoo.tasks.face.Margin in MindSpore: softmax over classes that are split over ranks, with a margin for the own class.

No rank ever holds the whole class matrix or its logits. The backward pass is written out: the exact transpose of the
forward one, which it follows at once, so that no matrix of logits is kept for it. All in fp32.
"""

from collections.abc import Sequence

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.tasks import face
from zoo.trainer.mindspore.parallel import total
from zoo.trainer.mindspore.shard import ParameterShard, gather

EPS = 1e-12  # of a vector's length


class Margin(nn.Cell):
    """Objective: embeddings (N, d), `label` (N,). Owns the class matrix, of which each rank holds some rows."""

    equal_counts = True

    def __init__(self, settings: face.Margin, arch, plan, world):
        super().__init__()
        self.settings, self.rank, self.ranks, self.on_cpu = settings, world.rank, world.size, world.device_type == "cpu"
        # Not `shard`, which is a method of every Cell.
        self.split = ParameterShard(face.HEAD_WEIGHT, arch.num_classes, arch.embedding, settings.sample_rate, plan, world)
        self.shards = {face.HEAD_WEIGHT: self.split}
        self.targets = ("row",) if settings.sample_rate == 1 else ("row", "index")
        self.by_transpose, self.transpose_by = ops.MatMul(transpose_b=True), ops.MatMul(transpose_a=True)

    def count(self, batch: dict[str, Tensor]) -> int:
        return len(batch["label"])

    def begin(self, parts: Sequence[dict[str, Tensor]], number: int) -> list[dict[str, Tensor]]:
        """Fix the rows that update `number` uses; the parts with `row`: where the classes of all ranks' samples lie."""
        found = self.split.sample_rows(ops.stack([gather(part["label"], self.ranks) for part in parts]), number)
        rows = found.pop("row")
        return [{**part, **found, "row": rows[i]} for i, part in enumerate(parts)]

    def construct(self, x: Tensor, row: Tensor, index=None) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the losses of this rank's samples, its gradient by x, and that of all ranks' sum by the rows used.

        x: embeddings (N, d). row: (M,) of all ranks' M samples, where a sample's class lies among the K rows used
        here, else -1. All ranks must weigh their sums alike, as shares of one mean are.
        """
        settings, weight = self.settings, self.split.active_rows(index)
        x = x.astype(mstype.float32)
        length = ops.maximum(ops.sqrt(ops.square(x).sum(1, keepdims=True)), EPS)
        units = gather(x / length, self.ranks)
        inverse = 1 / ops.maximum(ops.sqrt(ops.square(weight).sum(1)), EPS)
        cosines = self.by_transpose(units, weight)  # (M, K), when they are multiplied by:
        cosines = ops.clamp(cosines * self.spread(inverse.reshape(1, -1), cosines), -1.0, 1.0)
        value, slope = margin(_target_logits(cosines, row), settings)
        hidden = None
        if settings.interclass is not None:
            hidden = cosines > settings.interclass
            cosines = ops.masked_fill(cosines, hidden, 0.0)
        logits = _scatter_targets(cosines, row, value) * settings.scale
        # The maximum of what is gathered: MindSpore's all-reduce on CPUs knows sums alone.
        largest = ops.max(gather(ops.max(logits, 1)[0], self.ranks).reshape(self.ranks, -1), 0)[0]
        target = ops.select(row >= 0, _target_logits(logits, row), ops.zeros_like(largest))
        each = ops.exp(logits - self.spread(largest.reshape(-1, 1), logits))
        sums = total(ops.stack((each.sum(1), target)), self.ranks)
        loss = self.local_rows(largest + ops.log(sums[0]) - sums[1], len(x)).sum()

        # Of the logits, then of the cosines, then of the products with the rows; all times a sample's own sum.
        share = 1 / sums[0].reshape(-1, 1)
        own = (_target_logits(each, row) - sums[0]) * slope
        if hidden is not None:
            each = ops.masked_fill(each, hidden, 0.0)
        each = _scatter_targets(each, row, own)
        each = each * self.spread((inverse * settings.scale).reshape(1, -1), each)
        to_units = self.local_rows(total(ops.matmul(each, weight) * share, self.ranks), len(x))
        to_weight = self.transpose_by(each, units * share)
        along = (to_weight * weight).sum(1)
        to_weight = to_weight - weight * self.spread((along * inverse * inverse).reshape(-1, 1), weight)
        mine = self.local_rows(units, len(x))
        to_x = (to_units - mine * (mine * to_units).sum(1, keepdims=True)) / length
        return loss, to_x, to_weight

    def spread(self, x: Tensor, like: Tensor) -> Tensor:
        """A row or a column for all of a matrix; on CPUs repeated: broadcasting takes tables of four times that."""
        return ops.tile(x, (like.shape[0] // x.shape[0], like.shape[1] // x.shape[1])) if self.on_cpu else x

    def local_rows(self, x: Tensor, count: int) -> Tensor:
        """This rank's `count` rows of those of all ranks."""
        return x[self.rank * count : (self.rank + 1) * count]


def margin(cosine: Tensor, settings: face.Margin) -> tuple[Tensor, Tensor]:
    """The target's cosine with its margin, and its derivative, which stays finite where that of the angle is not."""
    m1, m2, m3 = settings.m1, settings.m2, settings.m3
    value, slope = cosine, ops.ones_like(cosine)
    if (m1, m2) != (1.0, 0.0):
        sine = ops.sqrt((1 - cosine) * (1 + cosine))
        angle = m1 * ops.atan2(sine, cosine) + m2
        value, slope = ops.cos(angle), m1 * ops.sin(angle) / ops.maximum(sine, face.MIN_SINE)
    if settings.threshold and m2:
        beyond = cosine <= face.threshold_cosine(m2)
        value = ops.select(beyond, cosine - face.threshold_offset(m2), value)
        slope = ops.select(beyond, ops.ones_like(slope), slope)
    return value - m3, ops.ones_like(slope) if settings.straight_through else slope


def _target_logits(matrix: Tensor, row: Tensor) -> Tensor:
    """(M,): of each sample what belongs to its own class; anything, where the class is not here."""
    return ops.gather_d(matrix, 1, ops.maximum(row, 0).reshape(-1, 1)).reshape(-1)


def _scatter_targets(matrix: Tensor, row: Tensor, values: Tensor) -> Tensor:
    """The matrix with values (M,) in the places of the own classes that are here."""
    own = ops.select(row >= 0, values, _target_logits(matrix, row))
    return ops.tensor_scatter_elements(matrix, ops.maximum(row, 0).reshape(-1, 1), own.reshape(-1, 1), 1)
