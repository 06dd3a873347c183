"""What the recorders of all frameworks share: nested values, names of tensors, and the result of a pass."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from zoo.parity.inputs import nested
from zoo.parity.outline import Tensor
from zoo.parity.probe import Probe
from zoo.parity.recording import Entry

# Roles of tensors by the names that frameworks give them.
ROLES = {
    "kernel": "weight",
    "embedding": "weight",
    "embedding_table": "weight",
    "scale": "weight",
    "gamma": "weight",
    "beta": "bias",
    "_mean": "running_mean",
    "_variance": "running_var",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "mean": "running_mean",
    "var": "running_var",
}
DROPS = re.compile("drop_?path|drop_?block|stochastic_?depth", re.IGNORECASE)
RATES = ("p", "prob", "drop_prob", "rate", "dropout")  # attributes of dropout modules
KEPT = "keep_prob"
COUNTER = "num_batches_tracked"


class Objective(NamedTuple):
    """What the backward pass starts from.

    Attributes:
        weights: of the elements of the outputs, whose weighted sum is derived.
        inputs: all of them, by name.
        loss: of the side itself, a function of the framework's outputs and inputs; None for the weighted sum.
    """

    weights: Callable[[list[np.ndarray]], list[np.ndarray]]
    inputs: Mapping[str, np.ndarray]
    loss: Callable[[Any, Any], Any] | None = None


class Pass(NamedTuple):
    """Result of a pass: its outputs, what was derived, and gradients by name of the tensor, in canonical layout."""

    outputs: list[np.ndarray]
    loss: float | None
    gradients: dict[str, np.ndarray]


def is_dropout(module: Any, classes: tuple[type, ...]) -> bool:
    """Return whether a module is of the framework's classes of dropout, or drops whole paths or blocks by its name."""
    return isinstance(module, classes) or bool(DROPS.search(type(module).__name__))


def dropout_rates(modules: Mapping[str, Any], classes: tuple[type, ...]) -> dict[str, float]:
    """Return the share that each dropout module leaves out, by its path."""
    found = {}
    for path, module in modules.items():
        given = {name: getattr(module, name, None) for name in (*RATES, KEPT)}
        rates = [
            1 - value if name == KEPT else value for name, value in given.items() if isinstance(value, int | float)
        ]
        if rates and is_dropout(module, classes):
            found[path] = float(rates[0])
    return found


def tensors_of(named: Iterable[tuple[str, tuple[int, ...], bool]], modules: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors of a model, given their names, canonical shapes, and whether they are trained."""
    found = []
    for name, shape, is_trained in named:
        module, _, own = name.rpartition(".")
        kind = type(modules[module]).__name__ if module in modules else ""
        found.append(Tensor(name, shape, module, kind, ROLES.get(own, own), is_trained))
    return found


def replaced(values: Any, is_tensor: Callable[[Any], bool], replace: Callable[[int, Any], Any]) -> Any:
    """Return nested tuples, lists, dictionaries and data classes with each tensor replaced, given its number.

    Dictionaries are walked in the order of their keys, which is the same in all frameworks; JAX sorts its own.
    """
    count = iter(range(1 << 30))

    def walk(value: Any) -> Any:
        if is_tensor(value):
            return replace(next(count), value)
        if isinstance(value, Mapping):
            walked = {key: walk(value[key]) for key in sorted(value, key=str)}
            changed = {key: walked[key] for key in value}
            if all(changed[key] is each for key, each in value.items()):
                return value
            return changed if type(value) is dict else _updated(value, changed)
        if isinstance(value, tuple | list):
            parts = [walk(each) for each in value]
            if all(a is b for a, b in zip(parts, value)):
                return value
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: walk(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return dataclasses.replace(value, **fields)
        return value

    return walk(values)


def flattened(values: Any, is_tensor: Callable[[Any], bool]) -> list[Any]:
    """Return the tensors of nested values, in the order in which `replaced` numbers them."""
    found: list[Any] = []

    def add(index: int, tensor: Any) -> Any:
        found.append(tensor)
        return tensor

    replaced(values, is_tensor, add)
    return found


def _updated(value: Any, changed: Mapping[str, Any]) -> Any:
    """Return a mapping of another class, such as a model's output, with changed values."""
    for key, each in changed.items():
        value[key] = each
    return value


class Model:
    """What the models of all frameworks share.

    Attributes:
        TENSOR: class of tensors.
        layers: modules by attribute path; "" is the model.
        dtype: of its tensors and inputs.
    """

    TENSOR: type
    layers: Mapping[str, Any]
    is_compiled: bool
    dtype: Any

    def modules(self) -> Mapping[str, Any]:
        return {"": self.layers[""]} if self.is_compiled else self.layers

    def tensors(self) -> list[Tensor]:
        trained = self.trained().keys()
        found = ((name, self.canonical(name, each).shape, name in trained) for name, each in self.named().items())
        return tensors_of(found, self.layers)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return parameters and running statistics in the layout of PyTorch."""
        return {name: self.canonical(name, tensor) for name, tensor in self.named().items()}

    def dropout(self) -> dict[str, float]:
        """Return the rate of each dropout module, which passes leave out."""
        return {}

    def named(self) -> Mapping[str, Any]:
        """Return parameters and running statistics by name."""
        return self.trained()

    def trained(self) -> Mapping[str, Any]:
        """Return the parameters that have gradients, by name."""
        raise NotImplementedError

    def canonical(self, name: str, tensor: Any) -> np.ndarray:
        """Return a tensor of a name, or its gradient, in the layout of PyTorch."""
        return self.array_of(tensor)

    def inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return the inputs as tensors, in dictionaries where their names have dots."""
        return nested({name: self.input(array) for name, array in inputs.items()})

    def input(self, array: np.ndarray) -> Any:
        raise NotImplementedError

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set parameters and running statistics of the layout of PyTorch."""
        raise NotImplementedError

    def restore(self, tensors: Mapping[str, np.ndarray]) -> list[str]:
        """Load tensors of a checkpoint; return the names of those that lack."""
        own = self.named().keys()
        self.load({name: tensors[name] for name in own & tensors.keys()})
        return [name for name in own if name not in tensors]

    def arrays_of(self, values: Any) -> list[np.ndarray]:
        """Return the tensors of nested values as arrays."""
        return [self.array_of(tensor) for tensor in flattened(values, self.is_tensor)]

    @staticmethod
    def array_of(tensor: Any) -> np.ndarray:
        """Return a tensor as an array, of float64 if it has fractions."""
        array = np.asarray(tensor)
        return array.astype(np.float64) if array.dtype.kind == "f" else array

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self.TENSOR)


class Imperative(Model):
    """What models of PyTorch, Paddle and MindSpore share: modules, each of which computes its outputs by a method.

    Attributes:
        METHOD: by which modules compute.
        DROPOUT: classes of dropout, and of attention, which in evaluation mode differs by its dropout alone.
        like: makes a tensor like another one of an array.
        reported: (x, value, note) -> x, or the value in its place; what `note` makes of the gradient is that of x.
    """

    METHOD = "forward"
    DROPOUT: tuple[type, ...]
    like: Callable[[Any, np.ndarray], Any]
    reported: Callable[[Any, np.ndarray | None, Callable[[Any], Any]], Any]
    model: Any

    def dropout(self) -> dict[str, float]:
        return dropout_rates(self.layers, self.DROPOUT)

    def named(self) -> Mapping[str, Any]:
        persistent = self.model.state_dict().keys()
        buffers = {name: buffer for name, buffer in self.model.named_buffers() if name in persistent}
        named = {**dict(self.model.named_parameters()), **buffers}
        return {name: tensor for name, tensor in named.items() if not name.endswith(COUNTER)}

    def gradients(self) -> dict[str, np.ndarray]:
        found = {name: tensor.grad for name, tensor in self.trained().items()}
        return {name: self.canonical(name, gradient) for name, gradient in found.items() if gradient is not None}

    def total(self, objective: Objective, outputs: Any) -> Any:
        """Return the number that is derived."""
        if objective.loss:
            return objective.loss(outputs, self.inputs(objective.inputs))
        pairs = zip(flattened(outputs, self.is_tensor), objective.weights(self.arrays_of(outputs)))
        return sum((x * self.like(x, weight)).sum().to(self.dtype) for x, weight in pairs if x.is_floating_point())

    def has_gradient(self, tensor: Any) -> bool:
        raise NotImplementedError

    def write_back(self, given: Any, used: Any) -> None:
        """Change the arguments of a call as the call has changed those that it got in their place."""

    @contextmanager
    def reporting(self, probe: Probe | None, call: Callable) -> Iterator[Callable]:
        """Let every module report its calls: by its method, since hooks get keywords in some frameworks alone.

        Args:
            call: the model as a function, perhaps compiled. The one that the context returns reports the model's calls.
        """
        if probe is None:
            yield call
            return
        modules = self.modules()

        def report(name: str, function: Callable) -> Callable:
            @wraps(function)
            def reported(*args, **kwargs):
                given = args, kwargs
                entry = probe.enter(name, modules[name], self.arrays_of(given))
                args, kwargs = self._through(probe, entry, "in", given)
                outputs = function(*args, **kwargs)
                self.write_back(given, (args, kwargs))
                return self._through(probe, probe.leave(self.arrays_of(outputs)), "out", outputs)

            return reported

        inner = {name: module for name, module in modules.items() if name}
        before = {name: vars(module).get(self.METHOD) for name, module in inner.items()}
        for name, module in inner.items():
            vars(module)[self.METHOD] = report(name, getattr(module, self.METHOD))
        try:
            yield report("", call)
        finally:
            for name, module in inner.items():
                del vars(module)[self.METHOD]
                if before[name] is not None:
                    vars(module)[self.METHOD] = before[name]

    def _through(self, probe: Probe, entry: Entry, part: str, values: Any) -> Any:
        """Replace tensors of nested values by those of an entry; where gradients are computed, the probe gets theirs.

        Args:
            part: of a module, `in` or `out`.
        """

        def replace(index: int, tensor: Any) -> Any:
            def note(gradient: Any) -> Any:
                value = probe.gradient(entry.number, part, index, self.array_of(gradient))
                return gradient if value is None else self.like(gradient, value)

            value = entry.values[index]
            if self.has_gradient(tensor):
                return self.reported(tensor, value, note)
            return tensor if value is None else self.like(tensor, value)

        return replaced(values, self.is_tensor, replace)


def optimizers(make: Callable[[Any], Any], parameters: Any, model: Any) -> list[Any]:
    """Return the optimizers that a side's function makes: one, or several such as those of a GAN."""
    by_model = next(iter(inspect.signature(make).parameters), "") == "model"
    made = make(model if by_model else parameters)
    return list(made) if isinstance(made, tuple | list) else [made]


def arguments(function: Callable[..., Any], inputs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the inputs as keywords if the function has parameters of all their names, else as they are ordered."""
    try:
        names = inspect.signature(function).parameters.keys()
    except (TypeError, ValueError):
        names = {}.keys()
    return ([], dict(inputs)) if inputs.keys() <= names else (list(inputs.values()), {})
