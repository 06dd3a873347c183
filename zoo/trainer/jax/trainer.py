"""Trainer in JAX.

All tensors of a run are one tree, `State`. An update is one compiled function from a state, whose memory it takes over,
to the next one.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax

from zoo.data.batch import Batch
from zoo.data.loaders.packed import DeviceImages
from zoo.optim.base import Math
from zoo.optim.ema import moved
from zoo.trainer import pixels, state, update
from zoo.trainer.jax import ops, parallel
from zoo.trainer.jax.model import Hook, Network, channels_first, module_name, wide_dtype
from zoo.trainer.jax.parallel import BATCH, DEVICES, OWN, REPLICATED, local, sum_over_ranks
from zoo.trainer.jax.world import World
from zoo.trainer.objectives import find_objective
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import NO_IMAGES, Param, StepOutput
from zoo.trainer.state import ema_key, slot_key

DeviceBatch = dict[str, Array]
Tensors = dict[str, Array]  # by canonical name
Rates = dict[float, Array]  # learning rates, by the factor of their parameters
# Options of XLA: without the fused multiply-add, which rounds once, and without simplifications, as of a / b / c, a
# formula has the bits of other frameworks; where no excess digits are kept, every operation in 16 bits is rounded.
EXACT = {"xla_cpu_max_isa": "AVX", "xla_disable_hlo_passes": "algsimp"}
ROUNDED = {"xla_allow_excess_precision": False}


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


class Trainer:
    """Trainer in JAX; see zoo/trainer/protocol.py for the contracts of its methods.

    Args:
        objective: section `task:` of the recipe, with the loss.
        plan: everything else that a step needs.
    """

    def __init__(self, Model: type[nnx.Module], arch: Any, objective: Any, plan: Plan, world: World):
        jax.config.update("jax_enable_x64", plan.mode.is_fp64)  # else arrays that a model makes would have 64 bits
        self.plan, self.arch, self.mesh, self.ranks = plan, arch, world.mesh, world.size
        self.mode, self.dtype = plan.mode, wide_dtype(plan.mode)
        self.network = Network(Model, arch, plan, True, world.size)
        self.eval_network = Network(Model, arch, plan, False)
        self.objective: Any = build_objective(objective, arch, plan, world)
        self.shards: Mapping[str, Any] = self.objective.shards
        self.input_name = plan.fields[0].name
        self.normalization = pixels.scale_and_offset(plan.fields[0], np.dtype(self.dtype).type)
        self.params: tuple[Param, ...] = (
            *(
                state.describe(name, self.network.shape(name), name in self.network.statistics, None)
                for name in self.network.places
            ),
            *(state.describe(name, shard.shape, False, shard) for name, shard in self.shards.items()),
        )
        self.statistics = tuple(state.describe(name, (), True, None) for name in self.objective.statistics)
        self.gathers_state = False
        self.state_specs, first = self._specs(), self._first_state()
        self.lr_scales = {plan.param_group(name).lr_scale for name in first.weights}
        self.state: State = parallel.to_global(self.mesh, self.state_specs, first)
        self.last_gradients: tuple[Tensors, Any] = ({}, 1.0)  # those of the last step, and their loss scale
        outputs = (
            self.state_specs,
            REPLICATED,
            {name: OWN if name in self.shards else REPLICATED for name in first.weights},
        )
        options = {**(EXACT if self.mode.is_fp64 else {}), **(ROUNDED if self.mode.is_mixed else {})}
        self._step = parallel.compiled(
            self._stepped,
            self.mesh,
            (self.state_specs, REPLICATED, REPLICATED, OWN, OWN),
            outputs,
            donate_argnums=0,
            compiler_options={**options, **world.compiler_options},
        )
        self._average = parallel.compiled(
            self._averaged,
            self.mesh,
            (self.state_specs, REPLICATED),
            self.state_specs,
            donate_argnums=0,
            compiler_options=EXACT,
        )
        self._evaluate = jax.jit(self._evaluation, static_argnames="method")
        self._evaluate_frame = jax.jit(self._frame_evaluation)

    def _specs(self) -> State:
        """Return which tensors of a state are each rank's own."""
        weights = dict.fromkeys(self.network.trained, REPLICATED)
        weights.update(dict.fromkeys(self.shards, OWN))
        return State(weights, REPLICATED, OWN, weights, OWN, REPLICATED, REPLICATED)

    def _first_state(self) -> State:
        shapes = {name: variable.value.shape for name, (_, variable) in self.network.places.items()}
        shapes.update((name, shard.shape) for name, shard in self.shards.items())
        zeros = {name: np.zeros(shape, self.dtype) for name, shape in shapes.items()}
        weights = {name: zeros[name] for name in (*self.network.trained, *self.shards)}
        statistics = {name: zeros[name] for name in self.network.statistics}
        return State(
            weights=weights,
            frozen={name: array for name, array in zeros.items() if name not in weights and name not in statistics},
            statistics=statistics,
            slots={name: (array,) * len(self.plan.optimizer.slots) for name, array in weights.items()},
            averages=zeros if self.plan.ema else {},
            objective={name: np.asarray(value, self.dtype) for name, value in self.objective.statistics.items()},
            scaler=tuple(np.float32(value) for value in (self.plan.first_scale, 0, 0, 0)),
        )

    def to_device(self, batch: Batch, images: Mapping[str, DeviceImages] = NO_IMAGES) -> DeviceBatch:
        arrays = {**batch, **{name: value.on_host() for name, value in images.items()}}
        masks = {name: arrays[name].astype(self.dtype) for name in self.plan.dropout_masks if name in arrays}
        is_divided = all(len(array) % self.mesh.shape[DEVICES] == 0 for array in arrays.values())
        return parallel.to_global(self.mesh, BATCH if is_divided else OWN, {**arrays, **masks})

    def step(self, micro_batches: Sequence[DeviceBatch], lr: float, step: int) -> StepOutput:
        index = self.objective.begin(micro_batches, step) if self.shards else None
        names = {field.name for field in self.plan.fields}
        batches = [{name: batch[name] for name in names if name in batch} for batch in micro_batches]
        rates = {scale: np.asarray(lr * scale, self.dtype) for scale in self.lr_scales}
        number = np.float32(step + 1)
        rows = parallel.to_global(self.mesh, OWN, index)
        self.state, output, gradients = self._step(self.state, rates, number, batches, rows)
        output = StepOutput(*local(tuple(output)))
        self.last_gradients = {name: gradients[name] for name in self.state_specs.weights}, output.scale
        if self.plan.ema:
            self.state = self._average(self.state, number)
        return output

    def read(self, output: StepOutput) -> dict[str, float]:
        return {name: float(value) for name, value in output._asdict().items()}

    def predict(
        self, device_batch: DeviceBatch, size: tuple[int, int] | None = None, averaged: bool = False
    ) -> np.ndarray:
        forward = partial(self._evaluate, self._tensors(averaged))
        inputs = local(list(device_batch.values()))
        return np.asarray(self.plan.output.predict(ops, self.arch, forward, inputs, size))

    def features(self, device_batch: DeviceBatch) -> np.ndarray:
        maps = self._evaluate(self._tensors(), local(device_batch[self.input_name]), method="forward_features")
        return np.asarray(maps)

    def predict_frame(self, device_batch: DeviceBatch, state: Sequence[Array]) -> tuple[np.ndarray, Sequence[Array]]:
        frame = local(device_batch[self.input_name])
        logits, state = self._evaluate_frame(self._tensors(), frame, tuple(map(jnp.asarray, state)))
        return np.asarray(logits), state

    def sync_batch_stats(self) -> None:
        if self.ranks == 1:
            return
        names = self.network.statistics
        averages = {name: self.state.averages[name] for name in names} if self.plan.ema else {}
        mean = parallel.compiled(
            lambda tree: jax.tree.map(lambda x: sum_over_ranks(x, self.ranks) / self.ranks, tree), self.mesh, OWN, OWN
        )
        statistics, averages = mean((self.state.statistics, averages))
        self.state = self.state._replace(statistics=statistics, averages={**self.state.averages, **averages})

    def state_dict(self) -> dict[str, np.ndarray]:
        return {key: np.array(array) for key, array in self._named_state().items()}

    def load_state_dict(self, tensors: Mapping[str, np.ndarray]) -> None:
        values = self._named_state()
        unknown = sorted(tensors.keys() - values.keys())
        if unknown:
            raise KeyError(unknown[0])
        values.update(tensors)

        def loaded(key: str, name: str) -> np.ndarray:
            array = np.asarray(values[key], self.dtype)
            if name in self.shards:
                rows = self.shards[name].shape[0]
                return np.concatenate([array, np.zeros((rows - len(array), array.shape[1]), array.dtype)])
            return np.ascontiguousarray(self.network.from_canonical(name, array))

        now, slot_names = self.state, self.plan.optimizer.slots
        new = State(
            weights={name: loaded(name, name) for name in now.weights},
            frozen={name: loaded(name, name) for name in now.frozen},
            statistics={name: loaded(name, name) for name in now.statistics},
            slots={name: tuple(loaded(slot_key(slot, name), name) for slot in slot_names) for name in now.slots},
            averages={name: loaded(ema_key(name), name) for name in now.averages},
            objective={name: np.asarray(values[state.statistic_key(name)], self.dtype) for name in now.objective},
            scaler=(*(np.asarray(values[key], np.float32) for key in update.KEYS), np.float32(0)),
        )
        self.state = parallel.to_global(self.mesh, self.state_specs, new)

    def gradients(self) -> dict[str, np.ndarray]:
        gradients, scale = self.last_gradients
        scale = np.asarray(scale, self.dtype)
        return {name: np.ascontiguousarray(self._canonical(name, array) / scale) for name, array in gradients.items()}

    def nonfinite_report(self) -> str:
        gradients, _ = self.last_gradients
        return state.nonfinite_report(
            self.params, self._tensors(), gradients, lambda tensor: bool(jnp.isfinite(local(tensor)).all())
        )

    def preprocess(self, x: Array) -> Array:
        """Return the model's input: normalized pixels; a field without pixels is unchanged."""
        if self.normalization:
            scale, offset = self.normalization
            return x.astype(self.dtype) * scale + offset
        return x.astype(self.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    def _tensors(self, averaged: bool = False) -> Tensors:
        now = self.state
        return local(now.averages if averaged else {**now.weights, **now.frozen, **now.statistics})

    def _canonical(self, name: str, array: Array) -> np.ndarray:
        """Return this rank's part of a tensor in canonical layout, perhaps without a copy."""
        part = np.asarray(local(array))
        if name not in self.shards:
            return self.network.to_canonical(name, part)
        shard = self.shards[name]
        return part[: shard.last - shard.first]

    def _named_state(self) -> dict[str, np.ndarray]:
        """Return a state dict, perhaps without copies."""
        now = self.state
        tensors = {**now.weights, **now.frozen, **now.statistics}
        found = {param.name: self._canonical(param.name, tensors[param.name]) for param in self.params}
        found.update((ema_key(name), self._canonical(name, array)) for name, array in now.averages.items())
        for name, slots in now.slots.items():
            names = zip(self.plan.optimizer.slots, slots)
            found.update((slot_key(slot, name), self._canonical(name, array)) for slot, array in names)
        others = {state.statistic_key(name): array for name, array in now.objective.items()}
        others.update(zip(update.KEYS, now.scaler))
        return {**found, **{key: np.asarray(local(array)) for key, array in others.items()}}

    def _evaluation(self, tensors: Tensors, x: Array, method: str = "__call__") -> Array:
        """Return the output of the model in evaluation for raw input, in fp32 or fp64, channels first."""
        model = self.eval_network.bind(tensors)
        return channels_first(getattr(model, method)(self.preprocess(x)).astype(self.dtype))

    def _frame_evaluation(
        self, tensors: Tensors, x: Array, state: tuple[Array, ...]
    ) -> tuple[Array, tuple[Array, ...]]:
        logits, state = self.eval_network.bind(tensors).forward_frame(self.preprocess(x)[:, 0], state)
        return logits.astype(self.dtype), state

    def _stepped(
        self, now: State, rates: Rates, number: Array, batches: Sequence[DeviceBatch], index: Array | None
    ) -> tuple[State, StepOutput, Tensors]:
        """Return the next state, the result of the update, and its gradients times the loss scale."""
        active = {name: rows_of(now.weights[name], index) for name in self.shards}
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
            count = jnp.maximum(sum_over_ranks(count, self.ranks), 1).astype(self.dtype)
        weights = {**now.weights, **active}

        def add(sums: Any, batch: DeviceBatch) -> tuple[Any, None]:
            loss, gradients, *statistics = sums
            share = partial(self._share, now=now, statistics=statistics, batch=batch, count=count, index=index)
            (_, (more_loss, *statistics)), more = jax.value_and_grad(share, has_aux=True)(weights)
            return (loss + more_loss, jax.tree.map(jnp.add, gradients, more), *statistics), None

        sums: Any = jnp.zeros((), self.dtype), jax.tree.map(jnp.zeros_like, weights), now.statistics, now.objective
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
        return sum_over_ranks(gradient.astype(jnp.float16), self.ranks).astype(self.dtype)

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
        output = jax.tree.map(channels_first, model(self.preprocess(batch[self.input_name]), *masks))
        targets = [batch[name] for name in self.objective.targets]
        if self.shards:
            rows = [weights[name] for name in self.shards]
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
        if self.mode.rounds_gradients:
            of_shards = {name: gradients[name] for name in self.shards}
            of_model = {name: gradient for name, gradient in gradients.items() if name not in of_shards}
            rounded = update.round_gradients(ops, list(of_model.values()), list(of_shards.values()))
            gradients = dict(zip((*of_model, *of_shards), rounded))
        norm, divisors = self._norm_and_divisors(gradients, scale)
        finite = norm < jnp.inf  # and not NaN
        applied = number - now.scaler[2]
        weights, slots = dict(now.weights), dict(now.slots)
        for name, gradient in gradients.items():
            rows = index if name in self.shards else None
            math = Math(ops, self.ranks if name in self.shards else 1, self.mode.rounds_gradients)
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
        scaler = update.updated(ops, now.scaler, finite, plan.adapts_scale)
        new_state = State(weights, now.frozen, statistics, slots, now.averages, objective, scaler)
        return new_state, StepOutput(loss, norm, scale, scaler[2], scaler[3]), gradients

    def _averaged(self, now: State, number: Array) -> State:
        """Return the state after update `number` with the moving averages of its tensors, unless it was skipped."""
        assert self.plan.ema
        _, _, skipped, consecutive_skips = now.scaler
        rate = self.plan.ema.rate(ops, (number - skipped).astype(self.dtype))
        sources = {**now.weights, **now.frozen, **now.statistics}
        averages = {
            name: jnp.where(consecutive_skips == 0, moved(average, sources[name], rate), average)
            for name, average in now.averages.items()
        }
        return now._replace(averages=averages)

    def _norm_and_divisors(self, gradients: Tensors, scale: Array) -> tuple[Array, Tensors]:
        """Return the norm of the gradient, and what each gradient is divided by, for loss scale and clipping."""
        squares = {name: jnp.square(gradient).sum() for name, gradient in gradients.items()}
        of_model = jnp.sqrt(sum(square for name, square in squares.items() if name not in self.shards)) / scale
        norm = of_model
        if self.shards:
            of_shards = sum_over_ranks(jnp.stack([squares[name] for name in self.shards]).sum(), self.ranks)
            norm = jnp.hypot(of_model, jnp.sqrt(of_shards) / scale)
        divisor = clipped = scale.astype(self.dtype)
        if self.plan.clip_norm is not None:
            clipped_norm = norm if self.plan.clip_sharded else of_model
            clipped = divisor * jnp.maximum(clipped_norm / self.plan.clip_norm, 1.0)
        of_rows = clipped if self.plan.clip_sharded else divisor
        return norm, {name: of_rows if name in self.shards else clipped for name in gradients}


def rows_of(x: Array, index: Array | None) -> Array:
    """Return the rows of a tensor that an update uses; index None: all."""
    return x if index is None else x[index]


def with_rows(x: Array, rows: Array, index: Array | None) -> Array:
    return rows if index is None else x.at[index].set(rows, unique_indices=True, indices_are_sorted=True)


def build_objective(settings: Any, arch: Any, plan: Plan, world: World | None = None) -> Any:
    """Return the objective of section `task:`; world: needed by one with parameters of its own."""
    if settings.task == "face":
        from zoo.trainer.jax.partial_fc import Margin  # which other tasks do without

        assert world
        return Margin(settings, arch, plan, world)
    dtype = wide_dtype(plan.mode)
    return find_objective(settings.task)(ops, settings, plan, dtype, dtype)


def record_forward(
    trainer: Trainer, batch: DeviceBatch, training: bool, title: str, keep: Callable[[str, np.ndarray], None]
) -> Any:
    """Run the model on a micro-batch, uncompiled, and record every module; see zoo/trainer/recording.py.

    Args:
        trainer: its running statistics are unchanged afterwards.
        training: in training mode with the batch's dropout masks, else in evaluation mode.
        title, keep: see Recorder there; tensors are float64 arrays, channels first.
    """
    from zoo.trainer.recording import record  # for comparisons alone

    network = trainer.network if training else trainer.eval_network
    model = network.bind(trainer._tensors())
    modules = {module_name(path): module for path, module in model.iter_modules()}

    def forward() -> None:
        masks = [local(batch[name]) for name in trainer.plan.dropout_masks] if training else []
        model(trainer.preprocess(local(batch[trainer.input_name])), *masks)

    def array(tensor: Any) -> np.ndarray:
        return np.asarray(tensor, np.float64)

    return record(trainer, modules, lambda *arguments: [Hook(*arguments)], forward, array, title, keep)
