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
from zoo.trainer.jax.parallel import AXIS, all_gather, gather_on_host, local
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

    def sample_rows(self, classes: np.ndarray, sample_rate: float, seed: int, rank: int, step: int) -> np.ndarray:
        """Sample the rows of an update: int32 (k,), sorted; classes: of all samples of the update, on all ranks."""
        is_local = (classes >= self.first) & (classes < self.last)
        rows, count = np.where(is_local, classes - self.first, -1), self.last - self.first
        return sharding.choose_active_rows(rows, count, sample_rate, seed, rank, step).astype(np.int32)

    def rows_of(self, classes: Array, index: Array | None, ranks: int) -> Array:
        """Return the active row of each class within a compiled function; -1 for a class of another rank.

        Args:
            index: which rows are active, sorted; None for all.
        """
        rank = lax.axis_index(AXIS) if ranks > 1 else 0
        per_rank, remainder = divmod(self.num_rows, ranks)
        rows = classes - (rank * per_rank + jnp.minimum(rank, remainder))
        if index is None:
            return jnp.where((rows >= 0) & (rows < per_rank + (rank < remainder)), rows, -1)
        places = jnp.searchsorted(index, rows)
        return jnp.where(index[jnp.minimum(places, len(index) - 1)] == rows, places, -1)


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
        self.settings, self.world, self.ranks, self.seed = settings, world, world.size, plan.seed
        self.dtype = wide_dtype(plan.mode)
        self.shard = ParameterShard(arch.num_classes, arch.embedding, world)
        self.shards = {HEAD_WEIGHT: self.shard}
        self.statistics = settings.statistics

    def begin(self, micro_batches: Sequence[Batch], step: int) -> np.ndarray | None:
        """Return the rows that the update uses, sampled on the host: int32 (k,), sorted; None for all."""
        if self.settings.sample_rate == 1:
            return None
        own = np.stack([np.asarray(local(batch["label"])) for batch in micro_batches], 1)
        classes = gather_on_host(own, self.world.mesh)
        return self.shard.sample_rows(classes, self.settings.sample_rate, self.seed, self.world.rank, step)

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
        targets = self.shard.rows_of(all_gather(labels, self.ranks), index, self.ranks)
        return margin_loss(self.softmax, embeddings.astype(self.dtype), rows, targets, dict(statistics))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def margin_loss(
    softmax: MarginSoftmax, embeddings: Array, rows: Array, targets: Array, statistics: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    return _forward(softmax, embeddings, rows, targets, statistics)[0]


def _forward(softmax: MarginSoftmax, embeddings: Array, rows: Array, targets: Array, statistics: dict[str, Array]):
    variables = {name: nnx.Variable(value) for name, value in statistics.items()}
    loss, saved = softmax.forward(embeddings, rows, targets, tuple(variables.values()))
    return (loss, {name: variable[...] for name, variable in variables.items()}), saved


def _backward(softmax: MarginSoftmax, saved: Any, grads: tuple[Array, Any]):
    return *softmax.backward(saved, grads[0]), None, None


margin_loss.defvjp(_forward, _backward)
