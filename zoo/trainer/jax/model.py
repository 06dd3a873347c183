"""The model of a trainer: names and layouts of its tensors, and the precision and memory that a plan asks for.

A model of flax.nnx is split into its structure, which a compiled function closes over, and its tensors, which are the
function's arguments. They stay in nnx's layouts, kernels (H, W, inputs / groups, outputs) and (inputs, outputs);
canonical ones have the outputs first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from zoo.data.batch import Batch
from zoo.trainer import pixels
from zoo.trainer.jax.layers import BatchNorm, Fp64Conv
from zoo.trainer.plan import Mode, Plan

Path = tuple[Any, ...]

MIXED_DTYPES = {"fp16": jnp.float16, "bf16": jnp.bfloat16}
CANONICAL = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}


def mixed_dtype(mode: Mode) -> Any:
    """Return the 16-bit type of a mode; None if it has none."""
    return MIXED_DTYPES.get(mode.compute)


def wide_dtype(mode: Mode) -> Any:
    """Return the type of parameters, momentum and losses."""
    return jnp.float64 if mode.is_fp64 else jnp.float32


def module_name(path: Path) -> str:
    """Return the name of a module; nnx.Sequential holds its modules in `layers`, which the name leaves out."""
    return ".".join(str(part) for part in path if part != "layers")


def canonical_name(path: Path) -> str:
    return ".".join(filter(None, (module_name(path[:-1]), CANONICAL.get(path[-1], path[-1]))))


def to_canonical(array: np.ndarray, path: Path) -> np.ndarray:
    """Return a tensor with the axes of other frameworks: the last two of a kernel come first, outputs before inputs."""
    if path[-1] != "kernel":
        return array
    return array.transpose(array.ndim - 1, array.ndim - 2, *range(array.ndim - 2))


def from_canonical(array: np.ndarray, path: Path) -> np.ndarray:
    if path[-1] != "kernel":
        return array
    return array.transpose(*range(2, array.ndim), 1, 0)


def channels_first(x: Array) -> Array:
    """Return maps (..., H, W, C) as (..., C, H, W), as losses and outputs have them; other tensors as they are."""
    return jnp.moveaxis(x, -1, -3) if x.ndim > 3 else x


class Network:
    """A model as a function of its tensors, in training or evaluation.

    Attributes:
        dtype: of parameters and losses.
        places: path and variable of each tensor in the model, by canonical name: parameters, then statistics.
        trained, statistics: names of trained parameters and of running statistics.
    """

    def __init__(self, Model: Any, arch: Any, plan: Plan, training: bool, ranks: int = 1):
        self.dtype = wide_dtype(plan.mode)
        self.normalization = pixels.scale_and_offset(plan.fields[0], np.dtype(self.dtype).type)
        places: dict[str, tuple[Path, Any]] = {}

        def build() -> Any:
            model = Model(arch)
            places.update((canonical_name(path), (path, variable)) for path, variable in variables_of(model))
            return model

        model: Any = nnx.eval_shape(build)  # which sorts by name
        _set_mode(model, plan, training)
        _convert_layers(model, plan, training, ranks)
        self.structure, _ = nnx.split(model)
        self.places = dict(sorted(places.items(), key=lambda item: _is_statistic(item[1][1])))  # keeps their order
        self.statistics = [name for name, (_, variable) in self.places.items() if _is_statistic(variable)]
        self.trained = [name for name in self.places if name not in self.statistics and not plan.is_frozen(name)]

    def bind(self, tensors: Mapping[str, Array]) -> Any:
        """Return the model with tensors."""
        variables = [(path, type(variable)(tensors[name])) for name, (path, variable) in self.places.items()]
        return nnx.merge(self.structure, nnx.from_flat_state(variables))

    def preprocess(self, x: Array) -> Array:
        """Return the model's input: normalized pixels; a field without pixels is unchanged."""
        if self.normalization:
            scale, offset = self.normalization
            return x.astype(self.dtype) * scale + offset
        return x.astype(self.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    def moved_statistics(self, model: Any) -> dict[str, Array]:
        """Return the running statistics of a bound model, after a pass in training."""
        state = nnx.to_flat_state(nnx.state(model, nnx.BatchStat))
        return {canonical_name(path): variable[...] for path, variable in state}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor in canonical layout."""
        path, variable = self.places[name]
        return to_canonical(np.empty(variable.shape, np.bool_), path).shape

    def to_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        return to_canonical(array, self.places[name][0])

    def from_canonical(self, name: str, array: np.ndarray) -> np.ndarray:
        return from_canonical(array, self.places[name][0])


def variables_of(module: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and variable of each tensor, in the order in which the model defines them."""
    children = enumerate(module) if isinstance(module, Sequence) else vars(module).items()
    for key, value in children:
        if isinstance(value, nnx.Param | nnx.BatchStat):
            yield (*path, key), value
        elif isinstance(value, nnx.Module | Sequence) and not isinstance(value, str):
            yield from variables_of(value, (*path, key))


def modules_of(model: Any) -> list[tuple[Path, Any]]:
    return [(path, node) for path, node in nnx.iter_graph(model) if isinstance(node, nnx.Module)]


def _is_statistic(variable: Any) -> bool:
    return isinstance(variable, nnx.BatchStat)


def _set_mode(model: Any, plan: Plan, training: bool) -> None:
    """Set training or evaluation; a normalization whose weight and bias are frozen uses its running statistics."""
    model.train() if training else model.eval()
    for path, module in modules_of(model):
        if isinstance(module, nnx.BatchNorm):
            name = canonical_name((*path, "scale")).removesuffix("weight")
            is_frozen = plan.is_frozen(f"{name}weight") and plan.is_frozen(f"{name}bias")
            module.use_running_average = not training or is_frozen


def _convert_layers(model: Any, plan: Plan, training: bool, ranks: int) -> None:
    is_mixed = plan.mode.is_mixed and (training or plan.eval_mixed)
    fp32_modules = tuple(f"{name}." for name in plan.fp32_modules)
    for path, module in modules_of(model):
        name = module_name(path)
        if isinstance(module, nnx.BatchNorm):
            ours: Any = module
            ours.__class__, ours.ranks = BatchNorm, ranks if plan.sync_bn else 1
        elif isinstance(module, nnx.Conv) and plan.mode.is_fp64 and module.kernel.ndim == 4:
            module.__class__ = Fp64Conv
        elif isinstance(module, (nnx.Conv, nnx.Linear)) and is_mixed and not f"{name}.".startswith(fp32_modules):
            module.dtype = mixed_dtype(plan.mode)
        if training and name in plan.checkpointed_modules:
            module.__class__ = rematerialized(type(module))


def rematerialized(kind: type) -> type:
    """Return a class of modules whose activations the backward pass computes again; `keeping` is `kind`."""
    attributes = {"__call__": nnx.remat(kind.__call__), "__module__": kind.__module__, "keeping": kind}
    return type(kind.__name__, (kind,), attributes)


def to_tensors(batch: Batch) -> dict[str, Array]:
    """Return the arrays of a batch as tensors; whole numbers have 32 bits."""
    return {name: jnp.asarray(array) for name, array in batch.items()}


def create(Model: Any, arch: Any, tensors: Mapping[str, np.ndarray]) -> nnx.Module:
    """Return a model whose tensors have the values of arrays; its own initial values are never computed.

    Args:
        tensors: every parameter and running statistic by canonical name, in canonical layout.
    """
    model = nnx.eval_shape(lambda: Model(arch))
    variables = nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat)))
    arrays = [from_canonical(np.asarray(tensors[canonical_name(path)], np.float32), path) for path, _ in variables]
    loaded = [(path, type(variable)(jnp.asarray(array))) for (path, variable), array in zip(variables, arrays)]
    nnx.update(model, nnx.from_flat_state(loaded))
    return model


class Hook:
    """Calls in front of a module and behind it, with its tensors channels first; see zoo.trainer.recording.record.

    Args:
        masks: dropout masks, which are channels first already.
    """

    def __init__(self, masks: Sequence[Array], module: Any, enter: Callable, leave: Callable):
        self.module, self.kind = module, type(module)
        is_layer = not any(isinstance(part, nnx.Module) for part in vars(module).values())

        def canonical(x: Any) -> Any:
            if not isinstance(x, jax.Array) or any(x is mask for mask in masks):  # or a number of segments
                return x
            return jnp.moveaxis(x, -1, 1) if is_layer and x.ndim == 5 else channels_first(x)

        def call(module: Any, *inputs: Any) -> Any:
            enter(module, *jax.tree.map(canonical, inputs))
            outputs = self.kind.__call__(module, *inputs)
            leave(module, inputs, jax.tree.map(canonical, outputs))
            return outputs

        module.__class__ = type(
            self.kind.__name__, (self.kind,), {"__call__": call, "__module__": self.kind.__module__}
        )

    def remove(self) -> None:
        self.module.__class__ = self.kind
