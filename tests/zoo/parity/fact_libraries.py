"""The frameworks in which the code of facts is run: what it refers to, and how layers and optimizers are used."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from zoo.parity.recorders.common import ROLES


class Library(NamedTuple):
    """What code of a framework refers to, and how it is run.

    Attributes:
        names: modules and helpers.
        tensor, array: a numpy array as a tensor, and back.
        parameter: a tensor that an optimizer updates.
        named: parameters and statistics of a layer, by role.
        assign: gives a tensor a value.
        call: a layer with its inputs, given whether it trains.
        update: an optimizer made of code, its parameter, and gradients: the parameter after each update.
        clip: gradients clipped by what the code has made.
    """

    names: Mapping[str, Any]
    tensor: Callable[[np.ndarray], Any]
    array: Callable[[Any], np.ndarray]
    parameter: Callable[[np.ndarray], Any]
    named: Callable[[Any], dict[str, Any]]
    assign: Callable[[Any, np.ndarray], None]
    call: Callable[[Any, list[Any], bool], Any]
    update: Callable[[Any, Any, list[np.ndarray]], list[np.ndarray]]
    clip: Callable[[Any, Any, Any], Any]
    is_layer: Callable[[Any], bool]


def of_torch() -> Library:
    import torch

    torch.manual_seed(0)

    def parameter(array):
        made = torch.nn.Parameter(torch.tensor(array))
        made.grad = torch.tensor(array)
        return made

    def assign(tensor, array):
        with torch.no_grad():
            tensor.copy_(torch.tensor(array))

    def update(optimizer, weight, gradients):
        after = []
        for gradient in gradients:
            weight.grad = torch.tensor(gradient)
            optimizer.step()
            after.append(weight.detach().numpy().copy())
        return after

    torch.set_default_dtype(torch.float64)
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    return Library(
        names,
        torch.tensor,
        lambda value: value.detach().numpy(),
        parameter,
        lambda layer: {name.removesuffix("_l0"): value for name, value in layer.state_dict(keep_vars=True).items()},
        assign,
        lambda layer, inputs, training: layer.train(training)(*inputs),
        update,
        lambda made, parameter, gradient: parameter.grad,
        lambda value: isinstance(value, torch.nn.Module),
    )


def of_paddle() -> Library:
    import paddle

    paddle.seed(0)
    paddle.set_default_dtype("float64")

    def parameter(array):
        return paddle.create_parameter(
            list(array.shape), "float64", default_initializer=paddle.nn.initializer.Assign(array)
        )

    def named(layer):
        state = {ROLES.get(name, name).removesuffix("_l0"): value for name, value in layer.state_dict().items()}
        if isinstance(layer, paddle.nn.Linear):
            del state["weight"]  # which is transposed: the fact `dense-weight`
        return state

    def assign(tensor, array):
        tensor.set_value(array)

    def call(layer, inputs, training):
        layer.train() if training else layer.eval()
        return layer(*inputs)

    def update(optimizer, weight, gradients):
        after = []
        for gradient in gradients:
            (weight * paddle.to_tensor(gradient)).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            after.append(weight.numpy().copy())
        return after

    names = {"paddle": paddle, "nn": paddle.nn, "F": paddle.nn.functional}
    return Library(
        names,
        paddle.to_tensor,
        lambda value: value.numpy(),
        parameter,
        named,
        assign,
        call,
        update,
        lambda made, parameter, gradient: made([(parameter, gradient)])[0][1],
        lambda value: isinstance(value, paddle.nn.Layer),
    )


def of_mindspore() -> Library:
    import mindspore as ms

    ms.set_seed(0)

    def tensor(array):
        array = np.asarray(array)
        return ms.Tensor(array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int32))

    def named(layer):
        last = [(name.rpartition(".")[2], value) for name, value in layer.parameters_and_names()]
        return {ROLES.get(name, name): value for name, value in last}

    def call(layer, inputs, training):
        return layer.set_train(training)(*inputs)

    def update(optimizer, weight, gradients):
        after = []
        for gradient in gradients:
            optimizer((tensor(gradient),))
            after.append(weight.asnumpy().copy())
        return after

    names = {"ms": ms, "nn": ms.nn, "ops": ms.ops, "mint": ms.mint}
    return Library(
        names,
        tensor,
        lambda value: value.asnumpy(),
        lambda array: ms.Parameter(tensor(array), name="weight"),
        named,
        lambda value, array: value.set_data(tensor(array)),
        call,
        update,
        lambda made, parameter, gradient: made,
        lambda value: isinstance(value, ms.nn.Cell),
    )


def of_jax() -> Library:
    import equinox
    import flax.nnx
    import jax
    import optax

    def update(optimizer, weight, gradients):
        after, state = [], optimizer.init(weight)
        for gradient in gradients:
            updates, state = optimizer.update(jax.numpy.asarray(gradient), state, weight)
            weight = optax.apply_updates(weight, updates)
            after.append(np.asarray(weight))
        return after

    def clip(made, parameter, gradient):
        return made.update(gradient, made.init(parameter))[0]

    jax.config.update("jax_enable_x64", True)
    names = {"jax": jax, "jnp": jax.numpy, "optax": optax, "nnx": flax.nnx, "eqx": equinox}
    names |= {"rngs": flax.nnx.Rngs(0), "key": jax.random.key(0), "schedule": lambda count: 0.1}
    return Library(
        names,
        jax.numpy.asarray,
        lambda value: np.asarray(value[...] if isinstance(value, flax.nnx.Variable) else value),
        jax.numpy.asarray,
        lambda layer: {},
        lambda value, array: None,
        lambda layer, inputs, training: None,
        update,
        clip,
        lambda value: isinstance(value, flax.nnx.Module | equinox.Module),
    )


MADE = {"torch": of_torch, "paddle": of_paddle, "mindspore": of_mindspore, "jax": of_jax}
OF_JAX = ("jax", "flax", "equinox", "optax")


def helpers(library: Library) -> dict[str, Any]:
    """Return what the checks of facts refer to."""

    def array(value):
        return np.asarray(library.array(value), np.float64)

    def is_uniform(value, bound):
        found = np.abs(array(value))
        return found.max() <= bound * 1.0001 and np.isclose(found.mean(), bound / 2, rtol=0.03)

    def is_normal(value, sigma):
        found = array(value)
        return np.isclose(found.std(), sigma, rtol=0.03) and np.abs(found).max() > 3 * sigma

    def is_truncated(value, sigma):
        found = array(value)
        return np.isclose(found.std(), sigma, rtol=0.03) and np.abs(found).max() < 2.4 * sigma

    def is_orthogonal(value):
        found = array(value)
        return np.allclose(found @ found.T, np.eye(len(found)), atol=1e-5)

    def raises(function):
        try:
            function()
        except ValueError:
            return True
        return False

    def is_exact(got, x):
        wide = np.asarray(library.array(x), np.float64)
        centered = wide - wide.mean(-1, keepdims=True)
        right = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + 1e-5)
        return np.abs(array(got) - right).max() < 1e-11

    def without_x64(function):
        jax = library.names["jax"]
        jax.config.update("jax_enable_x64", False)
        try:
            return function()
        finally:
            jax.config.update("jax_enable_x64", True)

    found = {name: value for name, value in locals().items() if callable(value) and name not in ("array", "library")}
    return {**found, "is_zero": lambda value: not array(value).any(), "np": np}
