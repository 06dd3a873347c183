"""JAX's side of a comparison: its program's tensors, and passes that report every module.

A side's function returns one of

    (function, parameters)           function(parameters, inputs...)
    a module of flax.linen           it is initialized with the inputs; or (module, variables)
    a module of flax.nnx
    a module of Equinox              of whole batches; or (module, state)

The passes run without `jit`, so that every module computes numbers; those within `vmap` are reported as a whole.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.custom_batching import custom_vmap

from zoo.data.errors import UserError
from zoo.parity.inputs import nested
from zoo.parity.match import Tensor
from zoo.parity.probe import Probe
from zoo.parity.recorders.common import Objective, Pass, arguments, flattened, replaced, tensors_of
from zoo.parity.recorders.jax_layouts import layout_of
from zoo.parity.recorders.jax_programs import Program, cast, named, with_named

DTYPES: dict[str, Any] = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
VERSION = jax.__version__
HAS_GRADIENTS = True
OPTIMIZERS = "optax"  # the library of optimizers and losses
NO_GRADIENT = jax.dtypes.float0  # the type of an integer's
Note = Callable[[list[np.ndarray]], Sequence[np.ndarray | None]]


def start(device: str) -> None:
    """Compute on a device, with products in the precision of their factors."""
    jax.config.update("jax_platforms", "cuda" if device.startswith("gpu") else device.partition(":")[0])
    jax.config.update("jax_default_matmul_precision", "highest")


def set_precision(precision: str) -> None:
    """Let JAX have 64 bits, or make 32 of them, before a model is built."""
    jax.config.update("jax_enable_x64", precision == "fp64")


def precisions(device: str) -> tuple[str, ...]:
    """Return the precisions of a device that are compared."""
    return ("fp64", "fp32") if device.startswith(("cpu", "gpu", "cuda")) else ("fp32",)


class Model:
    """A program in one precision.

    Args:
        source: what the side's function has returned.
        precision: of all its tensors and inputs.
    """

    def __init__(self, source: Any, precision: str, device: str, is_compiled: bool):
        self.dtype = jnp.dtype(DTYPES[precision])
        self.program, self.is_compiled = program_of(source), is_compiled
        self.library = self.program.library

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Make the tensors of a program that makes them for the inputs that it gets."""
        positional, keywords = arguments(self.program.function, self._inputs(inputs))
        self.program.prepare(positional, keywords)
        self.trained, self.rest = cast(self.program.trained, self.dtype), cast(self.program.rest, self.dtype)

    def modules(self) -> dict[str, Any]:
        return {"": self.program.modules[""]} if self.is_compiled else self.program.modules

    def tensors(self) -> list[Tensor]:
        trained = named(self.trained)
        found = ((name, array.shape, name in trained) for name, array in self.arrays().items())
        return tensors_of(found, self.program.modules)

    def arrays(self) -> dict[str, np.ndarray]:
        return self._canonical(self._named())

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._set(self._own(arrays))

    def state(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint, by their paths, as the program has them."""
        return {name: np.asarray(array) for name, array in self._named().items()}

    def restore(self, tensors: Mapping[str, np.ndarray]) -> list[str]:
        """Load tensors of a checkpoint; return the names of those that lack."""
        own = self._named()
        self._set({name: jnp.asarray(tensors[name], own[name].dtype) for name in own.keys() & tensors.keys()})
        return [name for name in own if name not in tensors]

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Run forward in evaluation mode; or in training mode, with an objective, and backward."""
        training = objective is not None
        positional, keywords = arguments(self.program.function, self._inputs(inputs))
        structure: Any = None

        def forward(trained: Any) -> tuple[list[Any], Any]:
            nonlocal structure
            structure, rest = self.program.call(trained, self.rest, training, positional, keywords)
            return flat(structure), rest

        report = None if probe is None or self.is_compiled else _Report(probe)
        if self.is_compiled:
            forward = jax.jit(forward)
            if probe is not None:
                probe.enter("", self.program.modules[""], arrays_of((positional, keywords)))
        with jax.disable_jit(not self.is_compiled), self.program.reporting(report):
            if objective is None:
                outputs, _ = forward(self.trained)
                total, gradients = None, {}
            else:
                outputs, backward, self.rest = jax.vjp(forward, self.trained, has_aux=True)
                whole = replaced(structure, is_tensor, lambda index, _: outputs[index])
                total, cotangents = self._derived(objective, whole)
                gradients = self._canonical(named(backward(cotangents)[0]))
        if probe is not None and self.is_compiled:
            probe.leave(arrays_of(outputs))
        return Pass(arrays_of(outputs), total, gradients)

    def optimizer(self, make: Callable[[], Any]) -> Callable[[Mapping[str, np.ndarray]], None]:
        """Return a function that updates the weights along gradients, with what `make` returns, such as Optax's."""
        transformation = make()
        state = transformation.init(self.trained)

        def step(gradients: Mapping[str, np.ndarray]) -> None:
            nonlocal state
            own = with_named(jax.tree.map(jnp.zeros_like, self.trained), self._own(gradients))
            updates, state = transformation.update(own, state, self.trained)
            self.trained = jax.tree.map(
                lambda weight, update: (weight + update).astype(weight.dtype), self.trained, updates
            )

        return step

    def dropout(self) -> dict[str, float]:
        """Return the rate of each dropout module, which passes leave out."""
        return self.program.rates()

    def _derived(self, objective: Objective, outputs: Any) -> tuple[float, list[Any]]:
        """Return the total that is derived, and its gradients by the outputs."""
        tensors = flat(outputs)
        if objective.loss is None:
            weights = [jnp.asarray(w, t.dtype) for w, t in zip(objective.weights(arrays_of(tensors)), tensors)]
            is_float = [jnp.issubdtype(tensor.dtype, jnp.floating) for tensor in tensors]
            total = sum(float((t * w).sum()) for t, w, used in zip(tensors, weights, is_float) if used)
            empty = [np.zeros(tensor.shape, NO_GRADIENT) for tensor in tensors]
            return total, [w if used else none for w, used, none in zip(weights, is_float, empty)]
        loss, inputs = objective.loss, self._inputs(objective.inputs)

        def of(values: list[Any]) -> Any:
            return loss(replaced(outputs, is_tensor, lambda index, _: values[index]), inputs)

        total, backward = jax.vjp(of, tensors)
        return float(total), backward(jnp.ones_like(total))[0]

    def _inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        given = {name: array.astype(self.dtype) if array.dtype.kind == "f" else array for name, array in inputs.items()}
        return nested({name: jnp.asarray(array) for name, array in given.items()})

    def _named(self) -> dict[str, jax.Array]:
        return {**named(self.trained), **self.program.statistics(self.rest)}

    def _set(self, values: Mapping[str, jax.Array]) -> None:
        self.trained = with_named(self.trained, values)
        self.rest = self.program.with_statistics(self.rest, values)

    def _canonical(self, named: Mapping[str, Any]) -> dict[str, np.ndarray]:
        modules = self.program.modules
        return {name: layout_of(modules, name, array.shape).canonical(array_of(array)) for name, array in named.items()}

    def _own(self, arrays: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        own = self._named()
        layouts = {name: layout_of(self.program.modules, name, own[name].shape) for name in arrays}
        return {name: jnp.asarray(layouts[name].own(array), own[name].dtype) for name, array in arrays.items()}


class _Report:
    """Reports calls of modules to a probe."""

    def __init__(self, probe: Probe):
        self.probe = probe

    def __call__(self, name: str, module: Any, function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Any:
        """Call a function that is a module's, or the part of one that its base class computes."""
        probe = self.probe
        if probe.open and probe.calls[probe.open[-1]].name == name:
            return function(*args, **kwargs)
        depth = len(probe.open)
        args, kwargs = self._through("in", (args, kwargs), lambda arrays: probe.enter(name, module, arrays))
        outputs = function(*args, **kwargs)
        if len(probe.open) == depth:  # shapes alone are computed
            return outputs
        return self._through("out", outputs, probe.leave)

    def _through(self, part: str, values: Any, note: Callable[[list[np.ndarray]], Any]) -> Any:
        """Replace tensors of nested values by those that the probe returns; it gets their gradients, too."""
        entry: Any = None

        def noted(arrays: list[np.ndarray]) -> Sequence[np.ndarray | None]:
            nonlocal entry
            entry = note(arrays)
            return entry.values

        def noted_gradients(arrays: list[np.ndarray]) -> Sequence[np.ndarray | None]:
            return [self.probe.gradient(entry.number, part, *numbered) for numbered in zip(floats, arrays)]

        @jax.custom_vjp
        def passed(*tensors):
            return _seen(noted, tensors)

        def backward(_, gradients):
            seen = dict(zip(floats, _seen(noted_gradients, [gradients[index] for index in floats])))
            return tuple(seen.get(index, gradient) for index, gradient in enumerate(gradients))

        passed.defvjp(lambda *tensors: (_seen(noted, tensors), None), backward)
        tensors = flat(values)
        floats = [index for index, tensor in enumerate(tensors) if jnp.issubdtype(tensor.dtype, jnp.floating)]
        new = passed(*tensors)
        return replaced(values, is_tensor, lambda index, _: new[index])


def program_of(source: Any) -> Program:
    """Return the program that a side's function has returned, of a library that it has imported."""
    first, *others = source if isinstance(source, tuple) else (source,)
    if "flax" in sys.modules:
        from zoo.parity.recorders import jax_flax

        for module, made in ((jax_flax.linen.Module, jax_flax.Linen), (jax_flax.nnx.Module, jax_flax.Nnx)):
            if isinstance(first, module):
                return made(first, *others)
    if "equinox" in sys.modules:
        from zoo.parity.recorders import jax_equinox

        if isinstance(first, jax_equinox.eqx.Module):
            return jax_equinox.Equinox(first, *others)
    if not callable(first) or len(others) != 1:
        raise UserError(
            f"JAX: the model is {type(first).__name__}; return a module of flax.nnx, flax.linen or Equinox, or "
            "(function, parameters)"
        )
    return Program(first, *others)


def _seen(note: Note, tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return tensors, or what `note` replaces them by; it gets those within `vmap` with their batch in front."""
    if not any(isinstance(tensor, jax.core.Tracer) for tensor in tensors):
        values = note(arrays_of(list(tensors)))
        return tuple(t if v is None else jnp.asarray(v, t.dtype) for t, v in zip(tensors, values))

    @custom_vmap
    def passed(*tensors):
        return tensors

    @passed.def_vmap
    def of_batch(size, is_batched, *tensors):
        return _seen(note, tensors), tuple(is_batched)

    return tuple(passed(*tensors))


def is_tensor(value: Any) -> bool:
    return isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def flat(values: Any) -> list[jax.Array]:
    return flattened(values, is_tensor)


def arrays_of(values: Any) -> list[np.ndarray]:
    return [array_of(tensor) for tensor in flat(values)]


def array_of(tensor: jax.Array) -> np.ndarray:
    array = np.asarray(tensor)
    return array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array
