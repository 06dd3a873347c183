"""Trainer in JAX.

All tensors of a run are one tree, `State`. An update (update.py) is one compiled function from a state, whose memory it
takes over, to the next one.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from zoo.data.batch import Batch
from zoo.data.loaders.packed import DeviceImages
from zoo.trainer import state
from zoo.trainer.jax import ops, parallel
from zoo.trainer.jax.model import Hook, Network, channels_first, module_name, modules_of, wide_dtype
from zoo.trainer.jax.parallel import BATCH, DEVICES, OWN, REPLICATED, local, sum_over_ranks
from zoo.trainer.jax.update import DeviceBatch, State, Tensors, Update
from zoo.trainer.jax.world import World
from zoo.trainer.objectives import find_objective
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import NO_IMAGES, Param, StepOutput
from zoo.trainer.state import ema_key, slot_key
from zoo.trainer.update import KEYS

# Options of XLA: without the fused multiply-add, which rounds once, and without simplifications, as of a / b / c, a
# formula has the bits of other frameworks; where no excess digits are kept, every operation in 16 bits is rounded.
# From 0.8 on, fused loops have the multiply-add for any xla_cpu_max_isa; before, unfused ones lack negative padding.
UNUSED_PASSES = "algsimp,fusion" if jax.__version_info__ >= (0, 8) else "algsimp"
EXACT = {"xla_cpu_max_isa": "AVX", "xla_disable_hlo_passes": UNUSED_PASSES}
ROUNDED = {"xla_allow_excess_precision": False}


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
        self.decoded: deque[tuple[Sequence[Any], Any]] = deque()  # images of DALI, and where they are copied from
        outputs = (
            self.state_specs,
            REPLICATED,
            {name: OWN if name in self.shards else REPLICATED for name in first.weights},
        )
        options = {**(EXACT if self.mode.is_fp64 else {}), **(ROUNDED if self.mode.is_mixed else {})}
        computed = Update(plan, self.network, self.objective, world.size)
        self._step = parallel.compiled(
            computed.step,
            self.mesh,
            (self.state_specs, REPLICATED, REPLICATED, OWN, OWN),
            outputs,
            donate_argnums=0,
            compiler_options={**options, **world.compiler_options},
        )
        self._average = parallel.compiled(
            computed.average,
            self.mesh,
            (self.state_specs, REPLICATED),
            self.state_specs,
            donate_argnums=0,
            compiler_options=EXACT,
        )
        self._evaluate = jax.jit(self._evaluation, static_argnames="method", compiler_options=world.compiler_options)
        self._evaluate_frame = jax.jit(self._frame_evaluation, compiler_options=world.compiler_options)

    def _specs(self) -> State:
        """Return which tensors of a state are each rank's own."""
        weights = dict.fromkeys(self.network.trained, REPLICATED)
        weights.update(dict.fromkeys(self.shards, OWN))
        return State(weights, REPLICATED, OWN, weights, OWN, REPLICATED, REPLICATED)

    def _first_state(self) -> State:
        shapes = {name: variable.shape for name, (_, variable) in self.network.places.items()}
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
        assembled = {name: parallel.assemble(value) for name, value in images.items()}
        self._keep([*assembled.values()], images)
        arrays: dict[str, Any] = {**batch, **assembled}
        masks = {name: arrays[name].astype(self.dtype) for name in self.plan.dropout_masks if name in arrays}
        is_divided = all(len(array) % self.mesh.shape[DEVICES] == 0 for array in arrays.values())
        spec = BATCH if is_divided else OWN
        return {  # in their order; as one tree they would be sorted
            name: parallel.to_global(self.mesh, spec, array) for name, array in {**arrays, **masks}.items()
        }

    def _keep(self, copies: Sequence[Any], images: Mapping[str, DeviceImages]) -> None:
        """Keep images until they are copied, behind the update before: DALI decodes others into memory that is free."""
        if copies:
            self.decoded.append((copies, images))
        while self.decoded and all(each.is_ready() for each in self.decoded[0][0]):
            self.decoded.popleft()

    def step(self, micro_batches: Sequence[DeviceBatch], lr: float, step: int) -> StepOutput:
        index = self.objective.begin(micro_batches, step) if self.shards else None
        names = {field.name for field in self.plan.fields}
        batches = [{name: batch[name] for name in names if name in batch} for batch in micro_batches]
        rates = {scale: np.asarray(lr * scale, self.dtype) for scale in self.lr_scales}
        number = np.float32(step + 1)
        rows = parallel.to_global(self.mesh, OWN, index)
        self.last_gradients = ({}, 1.0)  # frees their memory
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
            scaler=(*(np.asarray(values[key], np.float32) for key in KEYS), np.float32(0)),
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
        others.update(zip(KEYS, now.scaler))
        return {**found, **{key: np.asarray(local(array)) for key, array in others.items()}}

    def _evaluation(self, tensors: Tensors, x: Array, method: str = "__call__") -> Array:
        """Return the output of the model in evaluation for raw input, in fp32 or fp64, channels first."""
        model = self.eval_network.bind(tensors)
        return channels_first(getattr(model, method)(self.network.preprocess(x)).astype(self.dtype))

    def _frame_evaluation(
        self, tensors: Tensors, x: Array, state: tuple[Array, ...]
    ) -> tuple[Array, tuple[Array, ...]]:
        logits, state = self.eval_network.bind(tensors).forward_frame(self.network.preprocess(x)[:, 0], state)
        return logits.astype(self.dtype), state


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
    modules = {module_name(path): module for path, module in modules_of(model)}
    for module in modules.values():  # remat would trace what is recorded
        module.__class__ = getattr(module, "keeping", type(module))

    masks = [local(batch[name]) for name in trainer.plan.dropout_masks] if training else []

    def forward() -> None:
        model(trainer.network.preprocess(local(batch[trainer.input_name])), *masks)

    def array(tensor: Any) -> np.ndarray:
        return np.asarray(tensor, np.float64)

    return record(trainer, modules, lambda *arguments: [Hook(masks, *arguments)], forward, array, title, keep)
