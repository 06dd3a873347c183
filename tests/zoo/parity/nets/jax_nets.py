"""Nets as functions of their parameters in JAX."""

import optax
from jax import numpy as jnp


def layers(parameters, x):
    a, b = parameters["a"], parameters["b"]
    return jnp.tanh(x @ a["kernel"] + a["bias"]) @ b["kernel"] + b["bias"]


def build_layers():
    a = {"kernel": jnp.ones((6, 7)), "bias": jnp.zeros(7)}
    return layers, {"a": a, "b": {"kernel": jnp.ones((7, 5)), "bias": jnp.zeros(5)}}


def sgd(momentum=0.9):
    return optax.sgd(0.1, momentum=momentum)
