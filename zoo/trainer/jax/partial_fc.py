"""The class matrix of a face model in JAX, sharded over ranks, and margin softmax with it (zoo/trainer/margin.py)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from zoo.losses import face
from zoo.tasks.face import HEAD_WEIGHT
from zoo.trainer import sharding
from zoo.trainer.jax import ops
from zoo.trainer.jax.model import mixed_dtype, wide_dtype
from zoo.trainer.jax.parallel import AXIS, all_gather, gather_on_host
from zoo.trainer.jax.world import World
from zoo.trainer.margin import MarginSoftmax
from zoo.trainer.plan import Plan

Batch = dict[str, Array]


class ParameterShard:
    """Rows [first, last) of a parameter (num_rows, width); the tensor itself is part of the trainer's state.

    The parts of a global array have one size, so that some ranks have a row of zeros more.

    Attributes:
        shape: of the part, with that row.
    """

    def __init__(self, num_rows: int, width: int, world: World):
        self.num_rows = num_rows
        self.first, self.last = sharding.row_range(num_rows, world.rank, world.size)
        self.shape = -(-num_rows // world.size), width


class RankedSoftmax(MarginSoftmax):
    """Margin softmax within a function that is compiled for all ranks, whose number it knows only when it runs."""

    def logits(self, units: Array, weight: Array, rows: Array, quality: Any) -> tuple[Array, Any, Array, Array]:
        logits, *others = super().logits(units, weight, rows, quality)
        is_padding = jnp.abs(weight).max(1) == 0
        return jnp.where(is_padding, -jnp.inf, logits), *others

    def local(self, x: Array, count: int) -> Array:
        return lax.dynamic_slice_in_dim(x, lax.axis_index(AXIS) * count, count)


class Margin:
    """Objective for embeddings (N, d) and `label` (N,), whose class matrix is part of the trainer's state.

    Attributes:
        statistics: initial values of the running statistics.
    """

    equal_counts, targets = True, ("label",)

    def __init__(self, settings: face.Settings, arch: Any, plan: Plan, world: World):
        kind = RankedSoftmax if world.size > 1 else MarginSoftmax
        self.softmax = kind(ops, settings, world.rank, world.size, mixed_dtype(plan.mode))
        self.settings, self.world, self.seed, self.dtype = settings, world, plan.seed, wide_dtype(plan.mode)
        self.shard = ParameterShard(arch.num_classes, arch.embedding, world)
        self.shards = {HEAD_WEIGHT: self.shard}
        self.statistics = settings.statistics

    def begin(self, micro_batches: Sequence[Batch], step: int) -> np.ndarray | None:
        """Return the rows that the update uses, sampled on the host: int32 (k,), sorted; None for all."""
        if self.settings.sample_rate == 1:
            return None
        own = np.stack([np.asarray(batch["label"].addressable_data(0)) for batch in micro_batches], 1)
        classes = gather_on_host(own, self.world.mesh)
        is_local = (classes >= self.shard.first) & (classes < self.shard.last)
        rows, count = np.where(is_local, classes - self.shard.first, -1), self.shard.last - self.shard.first
        index = sharding.choose_active_rows(rows, count, self.settings.sample_rate, self.seed, self.world.rank, step)
        return index.astype(np.int32)

    def count(self, batch: Batch) -> int:
        return len(batch["label"])

    def total(
        self, embeddings: Array, labels: Array, rows: Array, index: Array | None, statistics: Mapping[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        """Return the sum of the losses of this rank's samples, and the moved statistics.

        Args:
            rows: of the class matrix that the update uses.
            index: which rows these are; None for all.
        """
        classes = all_gather(labels, self.world.size)
        targets = classes - self._first_row()
        if index is None:
            is_local = (targets >= 0) & (targets < self._row_count())
            targets = jnp.where(is_local, targets, -1)
        else:
            places = jnp.searchsorted(index, targets)
            is_local = index[jnp.clip(places, 0, len(index) - 1)] == targets
            targets = jnp.where(is_local, places, -1)
        return margin_loss(self.softmax, embeddings.astype(self.dtype), rows, targets, dict(statistics))

    def _first_row(self) -> Any:
        if self.world.size == 1:
            return 0
        per_rank, remainder = divmod(self.shard.num_rows, self.world.size)
        rank = lax.axis_index(AXIS)
        return rank * per_rank + jnp.minimum(rank, remainder)

    def _row_count(self) -> Any:
        if self.world.size == 1:
            return self.shard.num_rows
        per_rank, remainder = divmod(self.shard.num_rows, self.world.size)
        return per_rank + (lax.axis_index(AXIS) < remainder)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def margin_loss(
    softmax: MarginSoftmax, embeddings: Array, rows: Array, targets: Array, statistics: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    return _forward(softmax, embeddings, rows, targets, statistics)[0]


def _forward(softmax: MarginSoftmax, embeddings: Array, rows: Array, targets: Array, statistics: dict[str, Array]):
    variables = {name: nnx.Variable(value) for name, value in statistics.items()}
    loss, saved = softmax.forward(embeddings, rows, targets, tuple(variables.values()))
    return (loss, {name: variable.value for name, variable in variables.items()}), saved


def _backward(softmax: MarginSoftmax, saved: Any, grads: tuple[Array, Any]):
    return *softmax.backward(saved, grads[0]), None, None


margin_loss.defvjp(_forward, _backward)
