"""The operations that losses, optimizers and outputs are written over, in numpy.

zoo/trainer/<framework>/ops.py has the same functions for tensors of the framework: there its quirks are mended, once.
They have numpy's names where numpy has the function.
Beside them, formulas use only what all tensors have: operators, shape, ndim, dtype, sum, reshape and slices. Functions
whose names end in an underscore may change their first argument, and return the result.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.trainer.pixels import resize_bilinear

Array = np.ndarray
exp, log, sqrt, square, abs, sin, cos = np.exp, np.log, np.sqrt, np.square, np.abs, np.sin, np.cos
arctan2, maximum, zeros_like, ones_like = np.arctan2, np.maximum, np.zeros_like, np.ones_like
logical_and, where, stack, concat = np.logical_and, np.where, np.stack, np.concatenate

# Numbers and types


def number(value: float, dtype: Any) -> Any:
    """Return a number of the settings as an operand of tensors of a type, not rounded to another type."""
    return value


def vector(values: Sequence[float], like: Array) -> Array:
    """Return numbers as a tensor of the type, and on the device, of another."""
    return np.array(values, like.dtype)


def array(values: Array, like: Array) -> Array:
    """Return a numpy array as a tensor of the type, and on the device, of another."""
    return values.astype(like.dtype)


def astype(x: Array, dtype: Any) -> Array:
    """Return x in another type."""
    return x.astype(dtype)


def index(x: Array) -> Array:
    """Return labels or truth values as integers that may be indices and sums."""
    return x.astype(np.int64)


def assign(target: Array, value: Array) -> Array:
    """Store a value in a tensor, and return it."""
    target[...] = value
    return target


def stop_gradient(x: Array) -> Array:
    """Return x as a constant to the differentiation."""
    return x


# Elements


def clip(x: Array, low: float, high: float) -> Array:
    return np.clip(x, low, high)


def log_softmax(logits: Array) -> Array:
    """Return the logarithm of the softmax over axis 1."""
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def log_sigmoid(x: Array) -> Array:
    """Return the logarithm of the sigmoid, with its exact derivative also at 0."""
    return -np.logaddexp(0, -x)


def cross_entropy(logits: Array, labels: Array, ignored: int = -100) -> Array:
    """Return -log p of the labels for the softmax p of logits (N, K, ...): (N, ...); 0 where a label is `ignored`."""
    valid = labels != ignored
    labels = np.where(valid, labels, 0).astype(np.int64)
    return -np.take_along_axis(log_softmax(logits), labels[:, None], 1)[:, 0] * valid


def one_hot(labels: Array, classes: int, dtype: Any) -> Array:
    """Return 1 for the class of a label and 0 for others: (N, ...) -> (N, K, ...)."""
    return (labels[:, None] == np.arange(classes).reshape((-1,) + (1,) * (labels.ndim - 1))).astype(dtype)


# Indices


def lookup(values: Sequence[float], indices: Array, dtype: Any) -> Array:
    """Return the numbers of these indices."""
    return np.array(values, dtype)[indices]


def element(x: Array, position: Array) -> Array:
    """Return the element of x (n,) at an index on the device, (), without a wait for it."""
    return x[position]


def sort(x: Array, descending: bool) -> Array:
    return np.sort(x)[::-1] if descending else np.sort(x)


def argsort_descending(x: Array) -> Array:
    """Return the indices that sort rows (N, P) in descending order."""
    return np.argsort(-x, 1, kind="stable")


def gather(x: Array, indices: Array) -> Array:
    """Return the elements of rows of x (N, P) at indices (N, Q)."""
    return np.take_along_axis(x, indices, 1)


def scatter(x: Array, indices: Array, values: Array) -> Array:
    """Return x (N, P) with values at indices of its rows, both (N, Q)."""
    result = x.copy()
    np.put_along_axis(result, indices, values, 1)
    return result


def cumsum(x: Array) -> Array:
    """Return the sums of the elements of a row up to each: (N, P)."""
    return np.cumsum(x, 1)


# Optimizers


def largest(x: Array) -> Array:
    """Return the largest absolute value, ()."""
    return np.abs(x).max()


def norm(x: Array, ranks: int) -> Any:
    """Return the L2 norm of x, whose other rows are on the other of `ranks` ranks, ()."""
    return np.sqrt(np.square(x).sum())


def bias_correction(log_beta: float, applied: Any, dtype: Any) -> Any:
    """Return 1 - beta^applied, for the mean of so many values that starts from 0, in fp64 where there is one."""
    return -np.expm1(np.float64(log_beta) * applied)


def round_to_fp32(x: Any) -> Any:
    """Return x, rounded to fp32, in its type."""
    return np.float64(np.float32(x))


# Rows and columns of large matrices (M, K)


def row_norms(x: Array) -> Array:
    """Return the L2 norms of rows, (M,)."""
    return np.sqrt(np.square(x).sum(1))


def row_max(x: Array) -> Array:
    """Return the largest elements of rows, (M,)."""
    return x.max(1)


def row_sums(x: Array) -> Array:
    """Return the sums of rows, (M,), of millions of elements too."""
    return x.sum(1)


def scale_(x: Array, factor: float) -> Array:
    return x * factor


def scale_rows(x: Array, factors: Array) -> Array:
    """Return x with each row multiplied by its factor (M,)."""
    return x * factors[:, None]


scale_rows_ = scale_rows


def scale_columns_(x: Array, factors: Array) -> Array:
    """Return x with each column multiplied by its factor (K,)."""
    return x * factors


clip_ = clip


def fill_zeros_(x: Array, mask: Array) -> Array:
    """Return x with zeros where the mask is set."""
    return np.where(mask, 0, x)


def exp_shifted_(x: Array, shift: Array) -> Array:
    return np.exp(x - shift[:, None])


scatter_ = scatter


def matmul(a: Array, b: Array, transpose_a: bool, transpose_b: bool, dtype: Any) -> Array:
    """Return the product of matrices, perhaps transposed; in fp32, of operands rounded to dtype if it is given."""
    a, b = a.T if transpose_a else a, b.T if transpose_b else b
    return a @ b if dtype is None else a.astype(dtype).astype(np.float32) @ b.astype(dtype).astype(np.float32)


def remove_radial_(grad: Array, x: Array, inverse_norms: Array) -> Array:
    """Return the gradient by rows (K, d), less its part along each: that by rows which are scaled to length 1."""
    return grad - x * ((grad * x).sum(1) * inverse_norms * inverse_norms)[:, None]


def rows_like(x: Array) -> Any:
    """Return a place for the rows of a matrix like x, to be given to set_rows from the first on."""
    return np.empty_like(x)


def set_rows(target: Any, first: int, rows: Array) -> Any:
    target[first : first + len(rows)] = rows
    return target


def joined_rows(target: Any) -> Array:
    """Return the matrix of all rows of a place."""
    return target


def after(x: Array, other: Array) -> Array:
    """Return x, computed after another tensor."""
    return x


# Ranks


def all_gather(x: Array, ranks: int) -> Array:
    """Concatenate x of all ranks along the first axis."""
    return x


def sum_over_ranks(x: Array, ranks: int) -> Array:
    """Return the sum of x over ranks; x may be changed."""
    return x


def max_over_ranks(x: Array, ranks: int) -> Array:
    """Return the maximum of x (M,) over ranks."""
    return x


# Moving averages


def move_(averages: list[Array], sources: list[Array], rate: Array) -> None:
    """Move averages as zoo.optim.ema.moved does, in place."""
    for average, source in zip(averages, sources):
        average -= rate * (average - source)


# Predictions


def flip(x: Array, axis: int) -> Array:
    """Return x in reversed order along an axis."""
    return np.flip(x, axis)


def resize(x: Array, size: tuple[int, int], align_corners: bool) -> Array:
    """Resize (N, C, H, W) by bilinear interpolation."""
    return resize_bilinear(x, size, align_corners)


def add_window(total: Array | None, window: Array, box: tuple[int, int, int, int], size: tuple[int, int]) -> Array:
    """Add a window (N, C, h, w) to (N, C, *size) at (top, bottom, left, right); total None: zeros."""
    total = np.zeros((*window.shape[:2], *size), window.dtype) if total is None else total
    top, bottom, left, right = box
    total[:, :, top:bottom, left:right] += window
    return total


def class_map(scores: Array) -> Array:
    """Return the index of the largest score along axis 1, uint8."""
    return scores.argmax(1).astype(np.uint8)
