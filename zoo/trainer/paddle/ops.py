"""The operations of zoo/trainer/numpy_ops.py in PaddlePaddle."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import _C_ops

from zoo.trainer.paddle import parallel

Tensor: Any = paddle.Tensor
exp, log, sqrt, square, abs = paddle.exp, paddle.log, paddle.sqrt, paddle.square, paddle.abs
sin, cos, arctan2, maximum, logical_and = paddle.sin, paddle.cos, paddle.atan2, paddle.maximum, paddle.logical_and
zeros_like, ones_like, rows_like = paddle.zeros_like, paddle.ones_like, paddle.empty_like
astype, stop_gradient, concat, stack = paddle.cast, Tensor.detach, paddle.concat, paddle.stack
index = partial(paddle.cast, dtype="int64")
softmax, log_softmax, log_sigmoid = partial(F.softmax, axis=1), partial(F.log_softmax, axis=1), F.log_sigmoid
cumsum, row_max = partial(paddle.cumsum, axis=1), partial(paddle.max, axis=1)
scale_ = scale_columns_ = Tensor.multiply_
clip_ = Tensor.clip_  # of whole numbers

# Numbers and types


def number(value: float, dtype: Any) -> Tensor:
    return paddle.full((), value, dtype)  # Paddle may round Python numbers to fp32


def vector(values: Sequence[float], like: Tensor) -> Tensor:
    return _constant(tuple(values), like.dtype)


@cache
def _constant(values: tuple[float, ...], dtype: Any) -> Tensor:
    """Return values as a tensor; copied to the device once, because a copy waits for it."""
    return paddle.to_tensor(values, dtype=dtype)


def array(values: np.ndarray, like: Tensor) -> Tensor:
    return paddle.to_tensor(values, dtype=like.dtype, place=like.place)


def assign(target: Tensor, value: Tensor) -> Tensor:
    return paddle.assign(value, target)


# Elements


def where(condition: Tensor, x: Tensor, y: Any) -> Tensor:
    return paddle.where(condition, x, y if isinstance(y, Tensor) else paddle.full_like(x, y))


def clip(x: Tensor, low: float, high: float) -> Tensor:
    if x.dtype != paddle.float64:
        return x.clip(low, high)
    return paddle.minimum(paddle.maximum(x, number(low, x.dtype)), number(high, x.dtype))  # clip rounds its limits


def cross_entropy(logits: Tensor, labels: Tensor, ignored: int = -100) -> Tensor:
    labels = labels.astype("int64").unsqueeze(1)
    return F.cross_entropy(logits, labels, ignore_index=ignored, reduction="none", axis=1).squeeze(1)


def one_hot(labels: Tensor, classes: int, dtype: Any) -> Tensor:
    numbers = paddle.arange(classes).reshape([-1] + [1] * (labels.ndim - 1))
    return (labels.astype(numbers.dtype).unsqueeze(1) == numbers).astype(dtype)


# Indices


def lookup(values: Sequence[float], indices: Tensor, dtype: Any) -> Tensor:
    return _constant(tuple(values), dtype)[indices]


def element(x: Tensor, position: Tensor) -> Tensor:
    return x[position]


def sort(x: Tensor, descending: bool) -> Tensor:
    return x.sort(descending=descending)


def argsort_descending(x: Tensor) -> Tensor:
    return x.argsort(1, descending=True)


def gather(x: Tensor, indices: Tensor) -> Tensor:
    return paddle.take_along_axis(x, indices, 1, broadcast=False)


def scatter(x: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    return paddle.put_along_axis(x, indices, values, 1)


# Optimizers


def largest(x: Tensor) -> Tensor:
    return x.abs().max()


def norm(x: Tensor, ranks: int) -> Tensor:
    # paddle.linalg.norm adds elements one after the other on a CPU, and of millions loses some percent.
    squares = _C_ops.squared_l2_norm(x).reshape([])
    return (parallel.all_reduce(squares) if ranks > 1 else squares).sqrt()


def bias_correction(log_beta: float, applied: Tensor, dtype: Any) -> Tensor:
    return -paddle.expm1(number(log_beta, "float64") * applied.astype("float64"))


def round_to_fp32(x: Tensor) -> Tensor:
    return x.astype("float32").astype(x.dtype)


# Rows and columns of large matrices

ROWS_AT_ONCE = 1 << 12  # rows of the weights that are copied at once


def row_norms(x: Tensor) -> Tensor:
    return x.square().sum(1).sqrt()


def row_sums(x: Tensor) -> Tensor:
    # On a CPU, Paddle adds a row's elements one after the other, and of millions in fp32 loses half a percent.
    if not x.place.is_cpu_place():
        return x.sum(1)
    return paddle.stack([row.sum(dtype="float64") for row in x]).astype(x.dtype)


def scale_rows(x: Tensor, factors: Tensor) -> Tensor:
    return x * factors.unsqueeze(1)


def scale_rows_(x: Tensor, factors: Tensor) -> Tensor:
    return x.multiply_(factors.unsqueeze(1))


def fill_zeros_(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill_(mask, 0.0)


def exp_shifted_(x: Tensor, shift: Tensor) -> Tensor:
    return x.subtract_(shift.unsqueeze(1)).exp_()


def scatter_(x: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    return x.put_along_axis_(indices, values, 1)


def matmul(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, dtype: Any) -> Tensor:
    if dtype is None:
        return paddle.matmul(a, b, transpose_a, transpose_b)
    a, b = a.astype(dtype), b.astype(dtype)
    if a.place.is_cpu_place():  # a CPU has no such product, and rounds in the same places
        a, b = a.astype("float32"), b.astype("float32")
    return paddle.matmul(a, b, transpose_a, transpose_b).astype(dtype).astype("float32")


def remove_radial_(grad: Tensor, x: Tensor, inverse_norms: Tensor) -> Tensor:
    for first in range(0, len(x), ROWS_AT_ONCE):
        grad_rows, rows, inverses = (row_view(each, first, ROWS_AT_ONCE) for each in (grad, x, inverse_norms))
        radial = (grad_rows * rows).sum(1) * inverses * inverses
        grad_rows.subtract_(rows * radial.unsqueeze(1))
    return grad


def row_view(x: Tensor, first: int, count: int) -> Tensor:
    # A slice is a copy with FLAGS_use_stride_kernel=0, which Paddle's guides set for NPUs.
    return x._slice(first, min(first + count, len(x)))


def set_rows(target: Tensor, first: int, rows: Tensor) -> Tensor:
    target[first : first + len(rows)] = rows
    return target


def joined_rows(target: Tensor) -> Tensor:
    return target


def after(x: Tensor, other: Tensor) -> Tensor:
    return x


# Ranks


def all_gather(x: Tensor, ranks: int) -> Tensor:
    return parallel.all_gather(x)


def sum_over_ranks(x: Tensor, ranks: int) -> Tensor:
    return parallel.all_reduce(x)


def max_over_ranks(x: Tensor, ranks: int) -> Tensor:
    return parallel.all_reduce(x.clone(), dist.ReduceOp.MAX)


# Moving averages


def move_(averages: list[Tensor], sources: list[Tensor], rate: Tensor) -> None:
    for average, source in zip(averages, sources):
        average.subtract_((average - source).multiply_(rate))


# Predictions


def flip(x: Tensor, axis: int) -> Tensor:
    # Paddle cannot flip bytes on a CPU.
    return paddle.flip(x.astype("int32") if x.dtype == paddle.uint8 else x, axis)


def resize(x: Tensor, size: tuple[int, int], align_corners: bool) -> Tensor:
    return F.interpolate(x, list(size), mode="bilinear", align_corners=align_corners)


def add_window(total: Tensor | None, window: Tensor, box: tuple[int, int, int, int], size: tuple[int, int]) -> Tensor:
    top, bottom, left, right = box
    padded = F.pad(window, [left, size[1] - right, top, size[0] - bottom])
    return padded if total is None else total + padded


def class_map(scores: Tensor) -> Tensor:
    return scores.argmax(1).astype("uint8")
