"""JAX's side of a comparison: its program's tensors, and passes that report every module.

A side's function returns one of

    (function, parameters)           function(parameters, inputs...)
    a module of flax.linen           it is initialized with the inputs; or (module, variables)
    a module of flax.nnx
    a module of Equinox              of whole batches; or (module, state)

The passes run without `jit`, so that every module computes numbers; those within `vmap` are reported as a whole.
A parameter of the program that says how it is used, such as `train` or `deterministic`, is set by each pass.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.custom_batching import custom_vmap

from zoo.data.errors import UserError
from zoo.parity import mapping
from zoo.parity.probe import Probe
from zoo.parity.recorders.common import Model as Base
from zoo.parity.recorders.common import Objective, Pass, arguments, flattened, replaced

DTYPES: dict[str, Any] = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
HAS_GRADIENTS = True
OPTIMIZERS = "optax"  # the library of optimizers and losses
LIBRARIES = ("flax", "equinox")  # of modules, with a file for each
# Parameters that say whether a program is trained (True) or evaluated (False).
TRAINS = {"train": True, "training": True, "is_training": True}
EVALUATES = {"deterministic": False, "use_running_average": False, "inference": False}
Report = Callable[[str, Any, Callable, tuple, Mapping[str, Any]], Any]
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


class Model(Base):
    """A program in one precision.

    Args:
        source: what the side's function has returned.
        precision: of all its tensors and inputs.
    """

    def __init__(self, source: Any, precision: str, device: str, is_compiled: bool):
        self.dtype = jnp.dtype(DTYPES[precision])
        self.program, self.is_compiled = program_of(source), is_compiled
        self.library, self.layers = self.program.library, self.program.modules

    def prepare(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Make the tensors of a program that makes them for the inputs that it gets."""
        positional, keywords = arguments(self.program.function, self.inputs(inputs))
        self.program.prepare(positional, keywords)
        self.tree, self.rest = cast(self.program.trained, self.dtype), cast(self.program.rest, self.dtype)

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._set(self._own(arrays))

    def state(self) -> dict[str, np.ndarray]:
        """Return the tensors of a checkpoint, by their paths, as the program has them."""
        return {name: np.asarray(array) for name, array in self.named().items()}

    def restore(self, tensors: Mapping[str, np.ndarray]) -> list[str]:
        """Load tensors of a checkpoint; return the names of those that lack."""
        own = self.named()
        self._set({name: jnp.asarray(tensors[name], own[name].dtype) for name in own.keys() & tensors.keys()})
        return [name for name in own if name not in tensors]

    def run(self, inputs: Mapping[str, np.ndarray], probe: Probe | None, objective: Objective | None) -> Pass:
        """Run forward in evaluation mode; or in training mode, with an objective, and backward."""
        training = objective is not None
        positional, keywords = arguments(self.program.function, self.inputs(inputs))
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
                outputs, _ = forward(self.tree)
                total, gradients = None, {}
            else:
                outputs, backward, self.rest = jax.vjp(forward, self.tree, has_aux=True)
                whole = replaced(structure, is_tensor, lambda index, _: outputs[index])
                total, cotangents = self._derived(objective, whole)
                found = named(backward(cotangents)[0])
                gradients = {name: self.canonical(name, gradient) for name, gradient in found.items()}
        if probe is not None and self.is_compiled:
            probe.leave(arrays_of(outputs))
        return Pass(arrays_of(outputs), total, gradients)

    def optimizer(self, make: Callable[[], Any]) -> Callable[[Mapping[str, np.ndarray]], None]:
        """Return a function that updates the weights along gradients, with what `make` returns, such as Optax's."""
        transformation = make()
        state = transformation.init(self.tree)

        def step(gradients: Mapping[str, np.ndarray]) -> None:
            nonlocal state
            own = with_named(jax.tree.map(jnp.zeros_like, self.tree), self._own(gradients))
            updates, state = transformation.update(own, state, self.tree)
            self.tree = jax.tree.map(lambda weight, update: (weight + update).astype(weight.dtype), self.tree, updates)

        return step

    def dropout(self) -> dict[str, float]:
        """Return the rate of each dropout module, which passes leave out."""
        return self.program.rates()

    def _derived(self, objective: Objective, outputs: Any) -> tuple[float, list[Any]]:
        """Return the total that is derived, and its gradients by the outputs."""
        tensors, inputs = flat(outputs), self.inputs(objective.inputs)
        weights = [] if objective.loss else objective.weights(arrays_of(tensors))

        def of(values: list[Any]) -> Any:
            if objective.loss:
                return objective.loss(replaced(outputs, is_tensor, lambda index, _: values[index]), inputs)
            return sum((x * jnp.asarray(w, x.dtype)).sum() for x, w in zip(values, weights) if is_float(x))

        total, backward = jax.vjp(of, tensors)
        return float(total), backward(jnp.ones_like(total))[0]

    def trained(self) -> dict[str, jax.Array]:
        return named(self.tree)

    def named(self) -> dict[str, jax.Array]:
        return {**self.trained(), **self.program.statistics(self.rest)}

    def canonical(self, name: str, tensor: jax.Array) -> np.ndarray:
        return mapping.forward(self.program.steps(name, tensor.shape), array_of(tensor))

    def input(self, array: np.ndarray) -> jax.Array:
        return jnp.asarray(array.astype(self.dtype) if array.dtype.kind == "f" else array)

    def _set(self, values: Mapping[str, jax.Array]) -> None:
        self.tree = with_named(self.tree, values)
        self.rest = self.program.with_statistics(self.rest, values)

    def _own(self, arrays: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        own = {name: tensor for name, tensor in self.named().items() if name in arrays}
        found = {name: mapping.backward(self.program.steps(name, own[name].shape), arrays[name]) for name in own}
        return {name: jnp.asarray(array, own[name].dtype).reshape(own[name].shape) for name, array in found.items()}


class Program:
    """A function of parameters.

    Attributes:
        function: whose parameters are the inputs.
        modules: by attribute path; "" is the program.
        trained: nested parameters.
        rest: nested tensors that no gradient changes.
        library: that of its modules.
    """

    library = "jax"

    def __init__(self, function: Callable, trained: Any):
        self.function: Callable = function
        self.trained: Any = trained
        self.rest: Any = {}
        self.modules: dict[str, Any] = {"": function}
        self.report: Report | None = None

    def prepare(self, args: list[Any], kwargs: Mapping[str, Any]) -> None:
        """Make the tensors of a program that makes them for its inputs."""

    def call(self, trained: Any, rest: Any, training: bool, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the outputs, and what they make of the rest of the tensors."""
        function, kwargs = self.function, {**modes(self.function, training), **kwargs}
        if self.report is not None:
            return self.report("", function, lambda *a, **k: function(trained, *a, **k), tuple(args), kwargs), rest
        return function(trained, *args, **kwargs), rest

    @contextmanager
    def reporting(self, report: Report | None) -> Iterator[None]:
        """Let every module report its calls; and leave out dropout."""
        self.report = report
        yield

    def statistics(self, rest: Any) -> dict[str, jax.Array]:
        """Return the tensors by name that are no parameters: running statistics."""
        return named(rest)

    def with_statistics(self, rest: Any, values: Mapping[str, jax.Array]) -> Any:
        return with_named(rest, values)

    def rates(self) -> dict[str, float]:
        """Return the rate of each dropout module."""
        return {}

    def steps(self, name: str, shape: tuple[int, ...]) -> mapping.Steps:
        """Return what gives a tensor the layout of PyTorch."""
        return ()


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
        floats = [index for index, tensor in enumerate(tensors) if is_float(tensor)]
        new = passed(*tensors)
        return replaced(values, is_tensor, lambda index, _: new[index])


def program_of(source: Any) -> Program:
    """Return the program that a side's function has returned, of a library that it has imported."""
    first, *others = source if isinstance(source, tuple) else (source,)
    for library in LIBRARIES:
        if library in sys.modules:
            for kind, made in import_module(f"{__package__}.jax_{library}").PROGRAMS.items():
                if isinstance(first, kind):
                    return made(first, *others)
    if not callable(first) or len(others) != 1:
        raise UserError(
            f"JAX: the model is {type(first).__name__}; return a module of flax.nnx, flax.linen or Equinox, or "
            "(function, parameters)"
        )
    return Program(first, *others)


def modes(function: Callable, training: bool) -> dict[str, bool]:
    """Return the arguments that tell a function whether it is trained."""
    names = inspect.signature(function).parameters.keys()
    return {name: training == value for name, value in {**TRAINS, **EVALUATES}.items() if name in names}


@contextmanager
def patched(modules: Iterable[Any], name_of: Callable[[Any], str | None], report: Report) -> Iterator[None]:
    """Let modules report their calls; Python looks for `__call__` in their classes alone."""
    classes = dict.fromkeys(type(module) for module in modules if callable(module))
    functions = {cls: cls.__call__ for cls in classes}
    own = {cls: vars(cls).get("__call__") for cls in classes}

    def reported(function: Callable) -> Callable:
        @wraps(function)
        def call(self, *args, **kwargs):
            name = name_of(self)
            if name is None:
                return function(self, *args, **kwargs)
            return report(name, self, lambda *a, **k: function(self, *a, **k), args, kwargs)

        return call

    for cls in classes:
        cls.__call__ = reported(functions[cls])
    try:
        yield
    finally:
        for cls, function in own.items():
            if function is None:
                del cls.__call__
            else:
                cls.__call__ = function


def named(tree: Any) -> dict[str, jax.Array]:
    """Return the tensors of nested ones by their paths, but for integers."""
    found = {name_of(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}
    return {name: leaf for name, leaf in found.items() if is_float(leaf)}


def with_named(tree: Any, values: Mapping[str, jax.Array]) -> Any:
    return jax.tree_util.tree_map_with_path(lambda path, leaf: values.get(name_of(path), leaf), tree)


def name_of(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype) if is_float(leaf) else leaf, tree)


def is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


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
    return array.astype(np.float64) if is_float(array) else array
