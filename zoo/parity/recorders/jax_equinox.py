"""Modules of Equinox."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax

from zoo.parity.mapping import Steps
from zoo.parity.recorders.jax import Program, Report, modes, patched

STATISTICS = ("running_mean", "running_var")


class Equinox(Program):
    """A module of Equinox, perhaps with the state of its batch normalizations."""

    library = "equinox"

    def __init__(self, module: Any, state: Any = None):
        self.trained, self.static = eqx.partition(module, eqx.is_inexact_array)
        self.modules, self.rest, self.function = _modules(module), state, module.__call__
        self.names: dict[int, str] = {}  # of the modules of a call

    def call(self, trained: Any, rest: Any, training: bool, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
        module = eqx.nn.inference_mode(eqx.combine(trained, self.static), value=not training)
        module = jax.tree.map(
            lambda each: eqx.nn.inference_mode(each) if is_dropout(each) else each, module, is_leaf=is_dropout
        )
        self.names = {id(each): name for name, each in _modules(module).items()}
        given = {"key": jax.random.PRNGKey(0)} if "key" in inspect.signature(self.function).parameters else {}
        kwargs = {**modes(self.function, training), **given, **kwargs}
        if rest is None:
            return module(*args, **kwargs), rest
        outputs, rest = module(*args, state=rest, **kwargs)
        return outputs, rest

    @contextmanager
    def reporting(self, report: Report | None) -> Iterator[None]:
        if report is None:
            yield
            return
        with patched(self.modules.values(), lambda module: self.names.get(id(module)), report):
            yield

    def statistics(self, rest: Any) -> dict[str, jax.Array]:
        return {
            f"{name}.{role}": value
            for name, index in self._indices().items()
            for role, value in zip(STATISTICS, rest.get(index))
        }

    def with_statistics(self, rest: Any, values: Mapping[str, jax.Array]) -> Any:
        for name, index in self._indices().items():
            pairs = zip(STATISTICS, rest.get(index))
            rest = rest.set(index, tuple(values.get(f"{name}.{role}", value) for role, value in pairs))
        return rest

    def rates(self) -> dict[str, float]:
        return {name: float(each.p) for name, each in self.modules.items() if is_dropout(each)}

    def steps(self, name: str, shape: tuple[int, ...]) -> Steps:
        path, _, role = name.rpartition(".")
        module = self.modules.get(path)
        if role == "bias" and isinstance(module, eqx.nn.Conv | eqx.nn.ConvTranspose):  # (out, 1, 1)
            return (("reshape", shape, shape[:1]),)
        if role == "weight" and isinstance(module, eqx.nn.ConvTranspose):  # (out, in, height, width)
            space = tuple(range(2, len(shape)))
            return ("transpose", (1, 0, *space)), ("flip", space)
        return ()

    def _indices(self) -> dict[str, Any]:
        """Return where the state has the running mean and variance of each batch normalization."""
        norms = {name: each for name, each in self.modules.items() if isinstance(each, eqx.nn.BatchNorm)}
        return {name: getattr(each, f"{each.mode}_state_index") for name, each in norms.items()}


def is_dropout(value: Any) -> bool:
    return isinstance(value, eqx.nn.Dropout)


def _modules(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, eqx.Module):
        children: Iterable[tuple[Any, Any]] = vars(value).items()
    elif isinstance(value, Mapping):
        children = value.items()
    else:
        children = enumerate(value) if isinstance(value, list | tuple) else ()
    found = {name: value} if isinstance(value, eqx.Module) else {}
    for key, child in children:
        found |= _modules(child, f"{name}.{key}" if name else str(key))
    return found


PROGRAMS = {eqx.Module: Equinox}
