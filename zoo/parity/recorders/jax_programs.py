"""Programs of JAX as functions of their tensors: plain functions, and what modules of all libraries have in common.

A parameter of the program that says how it is used, such as `train` or `deterministic`, is set by each pass.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

import jax
from jax import numpy as jnp

# Parameters that say whether a program is trained (True) or evaluated (False).
TRAINS = {"train": True, "training": True, "is_training": True}
EVALUATES = {"deterministic": False, "use_running_average": False, "inference": False}
Report = Callable[[str, Any, Callable, tuple, Mapping[str, Any]], Any]


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
