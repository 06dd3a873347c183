"""The operations of zoo/trainer/numpy_ops.py in JAX."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from zoo.trainer import pixels
from zoo.trainer.jax import parallel

exp, log, sqrt, square, abs, sin, cos = jnp.exp, jnp.log, jnp.sqrt, jnp.square, jnp.abs, jnp.sin, jnp.cos
arctan2, maximum, zeros_like, ones_like = jnp.arctan2, jnp.maximum, jnp.zeros_like, jnp.ones_like
logical_and, where, clip, clip_, stack, concat = (
    jnp.logical_and,
    jnp.where,
    jnp.clip,
    jnp.clip,
    jnp.stack,
    jnp.concatenate,
)
stop_gradient, flip = lax.stop_gradient, jnp.flip
softmax, log_softmax = partial(jax.nn.softmax, axis=1), partial(jax.nn.log_softmax, axis=1)
log_sigmoid, cumsum, gather = jax.nn.log_sigmoid, partial(jnp.cumsum, axis=1), partial(jnp.take_along_axis, axis=1)
row_max, row_sums = partial(jnp.max, axis=1), partial(jnp.sum, axis=1)
rows_like = jnp.zeros_like
all_gather, sum_over_ranks, max_over_ranks = parallel.all_gather, parallel.sum_over_ranks, parallel.max_over_ranks

# Numbers and types


def number(value: float, dtype: Any) -> float:
    return value  # takes the type of the tensor beside it


def vector(values: Sequence[float], like: Array) -> Array:
    return jnp.array(values, like.dtype)


def array(values: np.ndarray, like: Array) -> Array:
    return jnp.asarray(values, like.dtype)


def astype(x: Array, dtype: Any) -> Array:
    return x.astype(dtype)


def index(x: Array) -> Array:
    return x.astype(jnp.int32)


def assign(target: Any, value: Array) -> Array:
    target[...] = value  # an nnx.Variable
    return value


# Elements


def cross_entropy(logits: Array, labels: Array, ignored: int = -100) -> Array:
    valid = labels != ignored
    labels = jnp.where(valid, labels, 0).astype(jnp.int32)
    losses = -jnp.take_along_axis(log_softmax(logits), labels[:, None], 1)[:, 0]
    return jnp.where(valid, losses, 0)


def one_hot(labels: Array, classes: int, dtype: Any) -> Array:
    return jax.nn.one_hot(labels, classes, dtype=dtype, axis=1)


# Indices


def lookup(values: Sequence[float], indices: Array, dtype: Any) -> Array:
    return jnp.array(values, dtype)[indices]


def element(x: Array, position: Array) -> Array:
    return x[position]


def sort(x: Array, descending: bool) -> Array:
    return jnp.sort(x, descending=descending)


def argsort_descending(x: Array) -> Array:
    return jnp.argsort(x, 1, stable=True, descending=True)


def scatter(x: Array, indices: Array, values: Array) -> Array:
    return jnp.put_along_axis(x, indices, values, 1, inplace=False)


scatter_ = scatter

# Optimizers


def largest(x: Array) -> Array:
    return jnp.abs(x).max()


def norm(x: Array, ranks: int) -> Array:
    return jnp.sqrt(sum_over_ranks(jnp.square(x).sum(), ranks))


def bias_correction(log_beta: float, applied: Array, dtype: Any) -> Array:
    return -jnp.expm1(log_beta * applied.astype(dtype))


def round_to_fp32(x: Array) -> Array:
    return x.astype(jnp.float32).astype(x.dtype)


# Rows and columns of large matrices


def row_norms(x: Array) -> Array:
    return jnp.sqrt(jnp.square(x).sum(1))


def scale_(x: Array, factor: float) -> Array:
    return x * factor


def scale_rows(x: Array, factors: Array) -> Array:
    return x * factors[:, None]


scale_rows_ = scale_rows


def scale_columns_(x: Array, factors: Array) -> Array:
    return x * factors


def fill_zeros_(x: Array, mask: Array) -> Array:
    return jnp.where(mask, 0, x)


def exp_shifted_(x: Array, shift: Array) -> Array:
    return jnp.exp(x - shift[:, None])


def matmul(a: Array, b: Array, transpose_a: bool, transpose_b: bool, dtype: Any) -> Array:
    a, b = a.T if transpose_a else a, b.T if transpose_b else b
    if dtype is None:
        return a @ b
    return jnp.matmul(a.astype(dtype), b.astype(dtype), preferred_element_type=jnp.float32)


def remove_radial_(grad: Array, x: Array, inverse_norms: Array) -> Array:
    return grad - x * ((grad * x).sum(1) * inverse_norms * inverse_norms)[:, None]


def set_rows(target: Array, first: int, rows: Array) -> Array:
    return target.at[first : first + len(rows)].set(rows)


def joined_rows(target: Array) -> Array:
    return target


def after(x: Array, other: Array) -> Array:
    return lax.optimization_barrier((x, other))[0]


# Predictions


def resize(x: Array, size: tuple[int, int], align_corners: bool) -> Array:
    """Resize (N, C, H, W) by bilinear interpolation: two matrix products, whose gradients are products, too."""
    rows, columns = (
        jnp.asarray(pixels.bilinear_matrix(inputs, outputs, align_corners), x.dtype)
        for inputs, outputs in zip(x.shape[2:], size)
    )
    return jnp.einsum("oh,nchw,pw->ncop", rows, x, columns)


def add_window(total: Array | None, window: Array, box: tuple[int, int, int, int], size: tuple[int, int]) -> Array:
    total = jnp.zeros((*window.shape[:2], *size), window.dtype) if total is None else total
    top, bottom, left, right = box
    return total.at[:, :, top:bottom, left:right].add(window)


def class_map(scores: Array) -> Array:
    return scores.argmax(1).astype(jnp.uint8)
