"""An update in JAX: a state and batches -> the next state, within a function that is compiled for all ranks."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from zoo.optim.base import Math
from zoo.optim.ema import moved
from zoo.trainer.jax import ops
from zoo.trainer.jax.model import Network, channels_first
from zoo.trainer.jax.parallel import sum_over_ranks
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import StepOutput
from zoo.trainer.update import round_gradients, updated

DeviceBatch = dict[str, Array]
Tensors = dict[str, Array]  # by canonical name
Rates = dict[float, Array]  # learning rates, by the factor of their parameters


class State(NamedTuple):
    """Tensors of a run, in the layouts of nnx; of the rows of a sharded parameter, each rank has its own.

    Attributes:
        weights: trained parameters.
        frozen: other parameters.
        statistics: running statistics of the model, each rank's own.
        slots: of the optimizer, in the order of its specification, by parameter.
        averages: moving averages of all tensors of the model, with each rank's statistics; empty without them.
        objective: running statistics of the objective.
        scaler: loss scale, finite updates since it last changed, updates skipped, and skipped last in a row.
    """

    weights: Any
    frozen: Any
    statistics: Any
    slots: Any
    averages: Any
    objective: Any
    scaler: Any


class Update:
    """Updates of a run.

    Args:
        objective: with the sharded parameters `shards`.
    """

    def __init__(self, plan: Plan, network: Network, objective: Any, ranks: int):
        self.plan, self.network, self.objective, self.ranks = plan, network, objective, ranks

    def step(
        self, now: State, rates: Rates, number: Array, batches: Sequence[DeviceBatch], index: Array | None
    ) -> tuple[State, StepOutput, Tensors]:
        """Return the next state, the result of the update, and its gradients times the loss scale."""
        active = {name: rows_of(now.weights[name], index) for name in self.objective.shards}
        loss, gradients, statistics, objective = self._loss_and_gradients(now, active, batches, index)
        return self._updated(now, rates, number, loss, gradients, (statistics, objective), index)

    def _loss_and_gradients(
        self, now: State, active: Tensors, batches: Sequence[DeviceBatch], index: Array | None
    ) -> tuple[Array, Tensors, Tensors, Tensors]:
        """Return the loss, its gradients over all ranks times the loss scale, and the moved statistics."""
        count: Any = sum(self.objective.count(batch) for batch in batches)
        if self.objective.equal_counts:
            count = self.ranks * count
        else:
            count = jnp.maximum(sum_over_ranks(count, self.ranks), 1).astype(self.network.dtype)
        weights = {**now.weights, **active}

        def add(sums: Any, batch: DeviceBatch) -> tuple[Any, None]:
            loss, gradients, *statistics = sums
            share = partial(self._share, now=now, statistics=statistics, batch=batch, count=count, index=index)
            (_, (more_loss, *statistics)), more = jax.value_and_grad(share, has_aux=True)(weights)
            return (loss + more_loss, jax.tree.map(jnp.add, gradients, more), *statistics), None

        sums: Any = (
            jnp.zeros((), self.network.dtype),
            jax.tree.map(jnp.zeros_like, weights),
            now.statistics,
            now.objective,
        )
        if len(batches) == 1:
            (loss, gradients, *moves), _ = add(sums, batches[0])
        else:
            (loss, gradients, *moves), _ = lax.scan(
                add, sums, jax.tree.map(lambda *arrays: jnp.stack(arrays), *batches)
            )
        for name in self.network.trained:
            gradients[name] = self._summed(gradients[name])
        return sum_over_ranks(loss, self.ranks) / self.ranks, gradients, *moves

    def _summed(self, gradient: Array) -> Array:
        """Return the sum of a gradient over ranks."""
        if not self.plan.fp16_allreduce:
            return sum_over_ranks(gradient, self.ranks)
        return sum_over_ranks(gradient.astype(jnp.float16), self.ranks).astype(self.network.dtype)

    def _share(
        self,
        weights: Tensors,
        now: State,
        statistics: Sequence[Tensors],
        batch: DeviceBatch,
        count: Any,
        index: Array | None,
    ) -> tuple[Array, tuple[Array, Tensors, Tensors]]:
        """Return the micro-batch's share of the mean loss times the loss scale; the share and the moved statistics."""
        of_model, of_objective = statistics
        model = self.network.bind({**weights, **now.frozen, **of_model})
        masks = [batch[name] for name in self.plan.dropout_masks]
        output = jax.tree.map(channels_first, model(self.network.preprocess(batch[self.plan.fields[0].name]), *masks))
        targets = [batch[name] for name in self.objective.targets]
        if self.objective.shards:
            rows = [weights[name] for name in self.objective.shards]
            total, of_objective = self.objective.total(output, *targets, *rows, index, of_objective)
        else:
            total = self.objective.total(output, *targets)
        share = total / count
        return share * now.scaler[0], (share, self.network.moved_statistics(model), of_objective)

    def _updated(
        self,
        now: State,
        rates: Rates,
        number: Array,
        loss: Array,
        gradients: Tensors,
        moves: tuple[Tensors, Tensors],
        index: Array | None,
    ) -> tuple[State, StepOutput, Tensors]:
        """Unscale, clip and update; an update whose gradient is not finite is skipped."""
        plan, scale = self.plan, now.scaler[0]
        if self.plan.mode.rounds_gradients:
            of_shards = {name: gradients[name] for name in self.objective.shards}
            of_model = {name: gradient for name, gradient in gradients.items() if name not in of_shards}
            rounded = round_gradients(ops, list(of_model.values()), list(of_shards.values()))
            gradients = dict(zip((*of_model, *of_shards), rounded))
        norm, divisors = self._norm_and_divisors(gradients, scale)
        finite = norm < jnp.inf  # and not NaN
        applied = number - now.scaler[2]
        weights, slots = dict(now.weights), dict(now.slots)
        for name, gradient in gradients.items():
            rows = index if name in self.objective.shards else None
            ranks = self.ranks if name in self.objective.shards else 1
            math = Math(ops, ranks, self.plan.mode.rounds_gradients, channels_last=True)
            gradient = gradient * math.rounded(1 / divisors[name])
            old = rows_of(now.weights[name], rows), *(rows_of(slot, rows) for slot in now.slots[name])
            lr_scale, decay = plan.param_group(name)
            direction, moved_slots = plan.optimizer.direction(math, old[0], gradient, old[1:], decay, applied)
            new = old[0] - rates[lr_scale] * direction, *moved_slots
            kept = (jnp.where(finite, value, before) for value, before in zip(new, old))
            targets = now.weights[name], *now.slots[name]
            weights[name], *of_slots = (with_rows(*each, rows) for each in zip(targets, kept))
            slots[name] = tuple(of_slots)
        statistics, objective = moves
        objective = {name: jnp.where(finite, value, now.objective[name]) for name, value in objective.items()}
        scaler = updated(ops, now.scaler, finite, plan.adapts_scale)
        new_state = State(weights, now.frozen, statistics, slots, now.averages, objective, scaler)
        return new_state, StepOutput(loss, norm, scale, scaler[2], scaler[3]), gradients

    def average(self, now: State, number: Array) -> State:
        """Return the state after update `number` with the moving averages of its tensors, unless it was skipped."""
        assert self.plan.ema
        _, _, skipped, consecutive_skips = now.scaler
        rate = self.plan.ema.rate(ops, (number - skipped).astype(self.network.dtype))
        sources = {**now.weights, **now.frozen, **now.statistics}
        averages = {
            name: jnp.where(consecutive_skips == 0, moved(average, sources[name], rate), average)
            for name, average in now.averages.items()
        }
        return now._replace(averages=averages)

    def _norm_and_divisors(self, gradients: Tensors, scale: Array) -> tuple[Array, Tensors]:
        """Return the norm of the gradient, and what each gradient is divided by, for loss scale and clipping."""
        squares = {name: jnp.square(gradient).sum() for name, gradient in gradients.items()}
        of_model = (
            jnp.sqrt(sum(square for name, square in squares.items() if name not in self.objective.shards)) / scale
        )
        norm = of_model
        if self.objective.shards:
            of_shards = sum_over_ranks(jnp.stack([squares[name] for name in self.objective.shards]).sum(), self.ranks)
            norm = jnp.hypot(of_model, jnp.sqrt(of_shards) / scale)
        divisor = clipped = scale.astype(self.network.dtype)
        if self.plan.clip_norm is not None:
            clipped_norm = norm if self.plan.clip_sharded else of_model
            clipped = divisor * jnp.maximum(clipped_norm / self.plan.clip_norm, 1.0)
        of_rows = clipped if self.plan.clip_sharded else divisor
        return norm, {name: of_rows if name in self.objective.shards else clipped for name in gradients}


def rows_of(x: Array, index: Array | None) -> Array:
    """Return the rows of a tensor that an update uses; index None: all."""
    return x if index is None else x[index]


def with_rows(x: Array, rows: Array, index: Array | None) -> Array:
    return rows if index is None else x.at[index].set(rows, unique_indices=True, indices_are_sorted=True)
