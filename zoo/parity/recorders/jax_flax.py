"""Modules of flax.linen and flax.nnx."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
from flax import linen, nnx
from jax import numpy as jnp

from zoo.parity.mapping import Steps
from zoo.parity.recorders.jax import Program, Report, modes, named, patched, with_named


class Flax(Program):
    library = "flax"

    def steps(self, name: str, shape: tuple[int, ...]) -> Steps:
        path, _, role = name.rpartition(".")
        return steps(self.modules.get(path), role, shape)


class Linen(Flax):
    """A module of flax.linen."""

    def __init__(self, module: Any, variables: Mapping[str, Any] | None = None):
        self.module, self.variables, self.function = module, variables, module.__call__
        self.modules, self.dropout = {"": module}, dict[str, float]()

    def prepare(self, args: list[Any], kwargs: Mapping[str, Any]) -> None:
        def noted(function, args, kwargs, context):
            name = ".".join(context.module.path)
            self.modules.setdefault(name, context.module)
            if isinstance(context.module, linen.Dropout):
                self.dropout[name] = float(context.module.rate)
            return function(*args, **kwargs)

        keys = {name: jax.random.PRNGKey(0) for name in ("params", "dropout")}
        with linen.intercept_methods(noted):
            initialize = partial(self.module.init, **modes(self.function, False))
            made = jax.jit(lambda keys: initialize(keys, *args, **kwargs))(keys)  # in one piece, without the outputs
        variables = dict(made if self.variables is None else self.variables)
        self.trained = variables.pop("params", {})
        self.rest = variables

    def call(self, trained: Any, rest: Any, training: bool, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
        variables, kwargs = {"params": trained, **rest}, {**modes(self.function, training), **kwargs}
        if not training:
            return self.module.apply(variables, *args, **kwargs), rest
        outputs, changed = self.module.apply(variables, *args, mutable=list(rest), **kwargs)
        return outputs, {**rest, **changed}

    @contextmanager
    def reporting(self, report: Report | None) -> Iterator[None]:
        def intercepted(function, args, kwargs, context):
            module = context.module
            if context.method_name != "__call__":
                return function(*args, **kwargs)
            let_compute_in_fp64(module)
            if isinstance(module, linen.Dropout):
                function = without_dropout
            if isinstance(module, linen.MultiHeadDotProductAttention) and module.deterministic is None:
                kwargs = {**kwargs, "deterministic": True}
            if report is None:
                return function(*args, **kwargs)
            return report(".".join(module.path), module, function, args, kwargs)

        with linen.intercept_methods(intercepted):
            yield

    def statistics(self, rest: Any) -> dict[str, jax.Array]:
        return {name: value for collection in rest.values() for name, value in named(collection).items()}

    def with_statistics(self, rest: Any, values: Mapping[str, jax.Array]) -> Any:
        return {key: with_named(collection, values) for key, collection in rest.items()}

    def rates(self) -> dict[str, float]:
        return self.dropout


class Nnx(Flax):
    """A module of flax.nnx. Copies of its modules, which nnx.scan and others make, keep their names as an attribute."""

    NAME = "parity_name"

    def __init__(self, module: Any):
        self.module, self.function = module, module.__call__
        nodes = nnx.iter_graph(module)  # nnx.iter_modules is a method before Flax 0.12, and deprecated as one since
        self.modules = {".".join(map(str, path)): each for path, each in nodes if isinstance(each, nnx.Module)}
        for name, each in self.modules.items():
            setattr(each, self.NAME, name)
            let_compute_in_fp64(each)
            if isinstance(each, nnx.Embed) and each.dtype == each.param_dtype:
                each.dtype = None  # that of its weights, when they are in another precision, too
            if isinstance(each, nnx.MultiHeadAttention) and each.attention_fn is nnx.dot_product_attention:
                each.attention_fn = attention
        _, *states = nnx.split(module, nnx.Param, ...)
        self.trained, self.rest = map(nnx.to_pure_dict, states)

    def call(self, trained: Any, rest: Any, training: bool, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
        definition, *states = nnx.split(self.module, nnx.Param, ...)
        for state, values in zip(states, (trained, rest)):
            nnx.replace_by_pure_dict(state, values)
        module = nnx.merge(definition, *states, copy=True)  # of variables that may change within a gradient
        module.train() if training else module.eval()
        module.set_attributes(deterministic=True, raise_if_not_found=False)  # without dropout
        outputs = module(*args, **{**modes(self.function, training), **kwargs})
        _, *states = nnx.split(module, nnx.Param, ...)
        return outputs, nnx.to_pure_dict(states[1])

    @contextmanager
    def reporting(self, report: Report | None) -> Iterator[None]:
        if report is None:
            yield
            return
        with patched(self.modules.values(), lambda module: getattr(module, self.NAME, None), report):
            yield

    def rates(self) -> dict[str, float]:
        return {name: float(each.rate) for name, each in self.modules.items() if isinstance(each, nnx.Dropout)}


def let_compute_in_fp64(module: Any) -> None:
    """Let a module whose inputs are cast to fp32 compute in fp64, if JAX does now."""
    if getattr(module, "dtype", None) == jnp.float32:
        object.__setattr__(module, "dtype", jnp.result_type(float))


def attention(*args: Any, **kwargs: Any) -> Any:
    """Return what Flax computes itself if weights are kept: in jax.nn.dot_product_attention, softmax is always fp32."""
    return nnx.dot_product_attention(*args, **{**kwargs, "module": kwargs["module"] or nnx.Module()})


def without_dropout(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def steps(module: Any, role: str, shape: tuple[int, ...]) -> Steps:
    """Return what makes (out, in, ...), as in PyTorch, of (in, out) or (height, width, in, out)."""
    kind, count = type(module).__name__, len(shape)
    is_general = kind in ("DenseGeneral", "LinearGeneral")
    if is_general and role == "bias":  # of several axes, such as heads
        return (("reshape", shape, (math.prod(shape),)),)
    if role != "kernel":
        return ()
    if is_general:
        axes = module.in_features if hasattr(module, "in_features") else module.axis
        inner = len(axes) if isinstance(axes, Sequence) else 1
        return ("reshape", shape, (math.prod(shape[:inner]), math.prod(shape[inner:]))), ("transpose", (1, 0))
    space = tuple(range(count - 2))
    if kind.startswith("ConvTranspose") and not module.transpose_kernel:
        return ("transpose", (count - 2, count - 1, *space)), ("flip", tuple(range(2, count)))
    if count == 2 or "Conv" in kind:  # of a transposed one with transpose_kernel, (height, width, out, in)
        return (("transpose", (count - 1, count - 2, *space)),)
    return ()


PROGRAMS = {linen.Module: Linen, nnx.Module: Nnx}
