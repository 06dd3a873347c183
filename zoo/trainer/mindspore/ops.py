"""The operations of zoo/trainer/numpy_ops.py in MindSpore, to be compiled in graphs."""

from collections.abc import Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, jit_class, ops
from mindspore import dtype as mstype

from zoo.trainer.mindspore import parallel

ROW = 1024  # elements of a long vector that are added first
exp, log, sqrt, square, abs = ops.exp, ops.log, ops.sqrt, ops.square, ops.abs
sin, cos, arctan2, maximum = ops.sin, ops.cos, ops.atan2, ops.maximum
all_gather, sum_over_ranks, concat, stack = parallel.all_gather, parallel.all_reduce, ops.concat, ops.stack
zeros_like, ones_like, logical_and, stop_gradient = ops.zeros_like, ops.ones_like, ops.logical_and, ops.stop_gradient

# Numbers and types


def number(value: Any, dtype: Any) -> Any:
    # An operation of a tensor and a Python number rounds the number to fp32.
    return value if dtype != mstype.float64 or isinstance(value, Tensor) else constant(value)


@ops.constexpr
def constant(value: float) -> Tensor:
    return Tensor(value, mstype.float64)


def operand(value: float, is_fp64: bool) -> Any:
    """Return a number that is not rounded on its way into a graph."""
    return Tensor(value, mstype.float64) if is_fp64 else float(value)


def compiled(settings: Any) -> Any:
    """Return a copy of settings for graphs, whose compiler would compute derived numbers in fp32."""
    kind = jit_class(type(settings))
    names = [name for name in dir(kind) if not name.startswith("_") and not isinstance(getattr(kind, name), property)]
    copied = object.__new__(kind)
    copied.__dict__.update({name: value for name in names if not callable(value := getattr(settings, name))})
    return copied


def vector(values: Sequence[float], like: Tensor) -> Tensor:
    return _vector(values, like.dtype)


@ops.constexpr
def _vector(values: Sequence[float], dtype: Any) -> Tensor:
    return Tensor(values, dtype)


def array(values: np.ndarray, like: Tensor) -> Tensor:
    return Tensor(values).astype(like.dtype)


def astype(x: Tensor, dtype: Any) -> Tensor:
    return x.astype(dtype)


def index(x: Tensor) -> Tensor:
    return x.astype(mstype.int32)


def assign(target: Any, value: Tensor) -> Tensor:
    ops.assign(target, value)
    return value


# Elements


def where(condition: Tensor, x: Tensor, y: Any) -> Tensor:
    if isinstance(y, (int, float)):
        return ops.select(condition, x, y * ops.ones_like(x))
    return ops.select(condition, x, y)


def clip(x: Tensor, low: float, high: float) -> Tensor:
    if x.dtype == mstype.float64:  # clamp rounds its limits
        return ops.minimum(ops.maximum(x, number(low, x.dtype)), number(high, x.dtype))
    return ops.clamp(x, low, high)


def log_softmax(logits: Tensor) -> Tensor:
    if logits.dtype == mstype.float32:
        return ops.log_softmax(logits, 1)
    shifted = logits - ops.stop_gradient(logits.max(1, keepdims=True))  # MindSpore's is exact to 1e-6 only
    return shifted - ops.log(ops.exp(shifted).sum(1, keepdims=True))


def softmax(logits: Tensor) -> Tensor:
    return ops.exp(log_softmax(logits))


def log_sigmoid(x: Tensor) -> Tensor:
    shift = ops.stop_gradient(ops.maximum(-x, ops.zeros_like(x)))
    return -(shift + ops.log1p(ops.exp(-shift) - 1 + ops.exp(-x - shift)))


def cross_entropy(logits: Tensor, labels: Tensor, ignored: int = -100) -> Tensor:
    if logits.ndim == 2:
        return -ops.gather_d(log_softmax(logits), 1, labels.reshape(-1, 1)).reshape(-1)
    # The logits of the labels are selected by a product with 0 and 1, because gathering them, with the gradient, takes
    # three times as long on a CPU.
    valid = labels != ignored
    shifted = logits - ops.stop_gradient(logits.max(1, keepdims=True))
    of_labels = (shifted * one_hot(labels, logits.shape[1], logits.dtype)).sum(1)
    losses = ops.log(ops.exp(shifted).sum(1)) - of_labels
    return losses * valid.astype(logits.dtype)


def one_hot(labels: Tensor, classes: int, dtype: Any) -> Tensor:
    labels = labels.astype(mstype.int32)
    numbers = ops.arange(classes).astype(mstype.int32).reshape((1, classes) + (1,) * (labels.ndim - 1))
    return (labels.expand_dims(1) == numbers).astype(dtype)


# Indices


def lookup(values: Sequence[float], indices: Tensor, dtype: Any) -> Tensor:
    return ops.gather(_vector(values, dtype), indices, 0)


def element(x: Tensor, position: Tensor) -> Tensor:
    return ops.gather(x, position, 0)


def sort(x: Tensor, descending: bool) -> Tensor:
    if x.dtype == mstype.float32:
        return ops.sort(x, -1, descending)[0]
    # On a CPU, ops.sort rounds to fp32.
    return ops.topk(x, x.size)[0] if descending else -ops.topk(-x, x.size)[0]


def argsort_descending(x: Tensor) -> Tensor:
    return ops.sort(x, 1, True)[1] if x.dtype == mstype.float32 else ops.topk(x, x.shape[1])[1]


def gather(x: Tensor, indices: Tensor) -> Tensor:
    return ops.gather_d(x, 1, indices)


def scatter(x: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    return ops.tensor_scatter_elements(x, indices, values, 1)


def cumsum(x: Tensor) -> Tensor:
    return ops.cumsum(x, 1)


# Optimizers


def largest(x: Tensor) -> Tensor:
    return ops.abs(x).max()


def sum_of_squares(x: Tensor) -> Tensor:
    """Return the sum of the squares of all elements, ().

    The kernel of a CPU that adds more than 200,000 numbers to a single one tries other numbers of threads in the first
    updates of a process, keeps the fastest, and so rounds otherwise after a resume. The one that adds rows does not.
    """
    squares, rest = ops.square(x).reshape(-1), x.size % ROW
    if rest == x.size or not _on_cpu():
        return squares.sum()
    if rest == 0:  # empty slices are errors
        return squares.reshape(-1, ROW).sum(1).sum()
    return squares[:-rest].reshape(-1, ROW).sum(1).sum() + squares[-rest:].sum()


def norm(x: Tensor, ranks: int) -> Tensor:
    return ops.sqrt(parallel.all_reduce(sum_of_squares(x), ranks))


def bias_correction(log_beta: Any, applied: Tensor, dtype: Any) -> Tensor:
    # Some devices have no fp64, and 1 - beta^t would lose digits in fp32, as MindSpore's expm1 on CPUs does.
    half = ops.tanh(number(log_beta, dtype) * applied.astype(dtype) / 2)
    return -2 * half / (1 - half)


def round_to_fp32(x: Tensor) -> Tensor:
    return x.astype(mstype.float32).astype(x.dtype)


# Rows and columns of large matrices. Nothing is in place: graphs are functions.


def row_norms(x: Tensor) -> Tensor:
    return ops.sqrt(ops.square(x).sum(1))


def row_max(x: Tensor) -> Tensor:
    return ops.max(x, 1)[0]


def row_sums(x: Tensor) -> Tensor:
    return x.sum(1)


@ops.constexpr
def _on_cpu() -> bool:
    return mindspore.get_context("device_target") == "CPU"


def _expand(x: Tensor, like: Tensor) -> Tensor:
    """Repeat a row or a column to the shape of a matrix; only on CPUs, where broadcasting needs four times that."""
    if _on_cpu():
        return ops.tile(x, (like.shape[0] // x.shape[0], like.shape[1] // x.shape[1]))
    return x


def scale_(x: Tensor, factor: Any) -> Tensor:
    return x * factor


def scale_rows(x: Tensor, factors: Tensor) -> Tensor:
    return x * _expand(factors.reshape(-1, 1), x)


scale_rows_ = scale_rows


def scale_columns_(x: Tensor, factors: Tensor) -> Tensor:
    return x * _expand(factors.reshape(1, -1), x)


def clip_(x: Tensor, low: float, high: float) -> Tensor:
    return ops.clamp(x, low, high)  # of whole numbers


def fill_zeros_(x: Tensor, mask: Tensor) -> Tensor:
    if x.dtype == mstype.float32:
        return ops.masked_fill(x, mask, 0.0)
    return ops.select(mask, ops.zeros_like(x), x)  # masked_fill rounds to fp32


def exp_shifted_(x: Tensor, shift: Tensor) -> Tensor:
    return ops.exp(x - _expand(shift.reshape(-1, 1), x))


scatter_ = scatter


def matmul(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, dtype: Any) -> Tensor:
    product = ops.MatMul(transpose_a, transpose_b)
    if dtype is None:
        return product(a, b)
    a, b = a.astype(dtype), b.astype(dtype)
    if _on_cpu():
        a, b = a.astype(mstype.float32), b.astype(mstype.float32)
    return product(a, b).astype(mstype.float32)  # elsewhere in 16 bits: MindSpore has no other for such operands


def remove_radial_(grad: Tensor, x: Tensor, inverse_norms: Tensor) -> Tensor:
    radial = (grad * x).sum(1) * inverse_norms * inverse_norms
    return grad - x * _expand(radial.reshape(-1, 1), x)


def rows_like(x: Tensor) -> Any:
    return ()


def set_rows(target: Any, first: int, rows: Tensor) -> Any:
    return target + (rows,)


def joined_rows(target: Any) -> Tensor:
    return ops.concat(target)


def after(x: Tensor, other: Tensor) -> Tensor:
    return ops.depend(x, other)


# Ranks


def max_over_ranks(x: Tensor, ranks: int) -> Tensor:
    # Of gathered ones, because all-reduce on CPUs can only add.
    return ops.max(parallel.all_gather(x, ranks).reshape(ranks, -1), 0)[0]


# Predictions


def flip(x: Tensor, axis: int) -> Tensor:
    return ops.flip(x, (axis,))


def resize(x: Tensor, size: tuple[int, int], align_corners: bool) -> Tensor:
    return ops.interpolate(x, size, mode="bilinear", align_corners=align_corners)


def add_window(total: Tensor | None, window: Tensor, box: tuple[int, int, int, int], size: tuple[int, int]) -> Tensor:
    top, bottom, left, right = box
    padded = ops.pad(window, (left, size[1] - right, top, size[0] - bottom))
    return padded if total is None else total + padded


def class_map(scores: Tensor) -> Tensor:
    return scores.argmax(1).astype(mstype.uint8)
