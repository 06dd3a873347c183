"""What the recorders of all frameworks share: nested values, names of tensors, and the result of a pass."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from zoo.parity.match import Tensor
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
RATES = ("p", "prob", "drop_prob", "rate")  # attributes of dropout modules
KEPT = "keep_prob"


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
    """Return nested tuples, lists, dictionaries and data classes with each tensor replaced, given its number."""
    count = iter(range(1 << 30))

    def walk(value: Any) -> Any:
        if is_tensor(value):
            return replace(next(count), value)
        if isinstance(value, Mapping):
            changed = {key: walk(each) for key, each in value.items()}
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


@contextmanager
def reporting(
    probe: Probe | None,
    modules: Mapping[str, Any],
    call: Callable,
    method: str,
    arrays: Callable[[Any], list[np.ndarray]],
    through: Callable[[Probe, Entry, str, Any], Any],
) -> Iterator[Callable]:
    """Let every module report its calls, by a method of its own, since hooks get keywords in some versions alone.

    Args:
        call: the model as a function, perhaps compiled. The one that the context returns reports the model's calls.
        method: which computes a module's outputs.
        arrays: returns the tensors of nested values.
        through: replaces tensors of nested values by those of an entry, given their part, `in` or `out`.
    """
    if probe is None:
        yield call
        return

    def report(name: str, function: Callable) -> Callable:
        @wraps(function)
        def reported(*args, **kwargs):
            entry = probe.enter(name, modules[name], arrays((args, kwargs)))
            args, kwargs = through(probe, entry, "in", (args, kwargs))
            outputs = function(*args, **kwargs)
            return through(probe, probe.leave(arrays(outputs)), "out", outputs)

        return reported

    inner = {name: module for name, module in modules.items() if name}
    before = {name: vars(module).get(method) for name, module in inner.items()}
    for name, module in inner.items():
        vars(module)[method] = report(name, getattr(module, method))
    try:
        yield report("", call)
    finally:
        for name, module in inner.items():
            del vars(module)[method]
            if before[name] is not None:
                vars(module)[method] = before[name]


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
