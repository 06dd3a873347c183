"""Logits of margin softmax in PaddlePaddle, and the gradients of a part of the class matrix; see margin.py."""

from collections.abc import Callable
from typing import NamedTuple

import paddle

from zoo.tasks import face

EPS = 1e-12  # smallest norm of a vector
MarginFunction = Callable[[paddle.Tensor], tuple[paddle.Tensor, paddle.Tensor]]  # (M,) -> with margin, slope
ROWS_AT_ONCE = 1 << 12  # rows of the weights that are copied at once
GRADIENT_SCALE = 1024.0  # of probabilities in fp16, which holds none below 6e-8: 10 million classes have 1e-7


class Logits(NamedTuple):
    """Logits of some classes, and what their gradient needs.

    Attributes:
        logits: (M, k), for M samples and k classes; overwritten by whoever uses them last.
        is_filtered: bool (M, k), of classes that the class filter leaves out; None without it.
        slopes: (M,), derivative of the target's cosine with margin by the one without; undefined for a sample whose
            class is elsewhere.
        inverse_norms: (k,), of the rows of the class matrix.
    """

    logits: paddle.Tensor
    is_filtered: paddle.Tensor | None
    slopes: paddle.Tensor
    inverse_norms: paddle.Tensor


def margin_logits(
    units: paddle.Tensor,
    weight: paddle.Tensor,
    target_rows: paddle.Tensor,
    settings: face.Margin,
    margin: MarginFunction,
    in_fp16: bool,
) -> Logits:
    """Compute the logits of units (M, d) and rows of the class matrix (k, d), with a margin of the target's."""
    inverse_norms = 1 / weight.square().sum(1).sqrt().clip(min=EPS)
    if in_fp16:
        cosines = _fp16_product(units, weight * inverse_norms.unsqueeze(1), transpose_y=True)
    else:
        cosines = paddle.matmul(units, weight, transpose_y=True).multiply_(inverse_norms)
    cosines.clip_(-1, 1)
    target_cosines, slopes = margin(_target_logits(cosines, target_rows))
    if settings.straight_through:
        slopes = paddle.ones_like(slopes)
    is_filtered = None
    if settings.interclass is not None:
        is_filtered = cosines > paddle.full(
            (), settings.interclass, cosines.dtype
        )  # of a number Paddle would make a matrix
        cosines.masked_fill_(is_filtered, 0.0)
    _scatter_targets(cosines, target_rows, target_cosines)
    return Logits(cosines.scale_(settings.scale), is_filtered, slopes, inverse_norms)


def gradients(
    chunk: Logits,
    sum_exps: paddle.Tensor,
    units: paddle.Tensor,
    weight: paddle.Tensor,
    target_rows: paddle.Tensor,
    factor: paddle.Tensor,
    in_fp16: bool,
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the gradients by units, of these classes, and by their rows of the class matrix.

    Args:
        chunk: with exp(logit - largest logit) as its logits, which are overwritten: the gradient of the logits, then of
            the cosines, then of the products, in place to save memory.
        factor: (), of the gradient by cosines.
    """
    grad = chunk.logits.divide_(sum_exps.unsqueeze(1))
    grad_targets = (_target_logits(grad, target_rows) - 1) * chunk.slopes
    if chunk.is_filtered is not None:
        grad.masked_fill_(chunk.is_filtered, 0.0)
    _scatter_targets(grad, target_rows, grad_targets)
    inverse_norms = chunk.inverse_norms
    if in_fp16:  # products of probabilities, which are then multiplied by the factor, with its loss scale, in fp32
        grad, factor = grad.scale_(GRADIENT_SCALE), factor / GRADIENT_SCALE
        grad_units = _fp16_product(grad, weight * inverse_norms.unsqueeze(1)).multiply_(factor)
        grad_weight = _fp16_product(grad, units, transpose_x=True).multiply_(inverse_norms.unsqueeze(1) * factor)
    else:
        grad.multiply_(inverse_norms * factor)
        grad_units, grad_weight = paddle.matmul(grad, weight), paddle.matmul(grad, units, transpose_x=True)
    for first in range(0, len(weight), ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        grad_rows, rows, inverses = grad_weight[part], weight[part], inverse_norms[part]  # views
        radial = (grad_rows * rows).sum(1) * inverses * inverses
        grad_rows.subtract_(rows * radial.unsqueeze(1))
    return grad_units, grad_weight


def own_targets(logits: paddle.Tensor, target_rows: paddle.Tensor) -> paddle.Tensor:
    """Return the logit of each sample's class: (M, K) -> (M,); 0 where target_rows is -1."""
    targets = _target_logits(logits, target_rows)
    return paddle.where(target_rows >= 0, targets, paddle.zeros_like(targets))


def row_sums(matrix: paddle.Tensor) -> paddle.Tensor:
    """Return the sums of rows: (M, K) -> (M,).

    On a CPU, Paddle adds a row's elements one after the other, and of millions in fp32 loses half a percent.
    """
    if not matrix.place.is_cpu_place():
        return matrix.sum(1)
    return paddle.stack([row.sum(dtype="float64") for row in matrix]).astype(matrix.dtype)


def _fp16_product(
    x: paddle.Tensor, y: paddle.Tensor, transpose_x: bool = False, transpose_y: bool = False
) -> paddle.Tensor:
    """Return x @ y in fp32, from operands in fp16 and with sums in fp32.

    Paddle's product of 16-bit matrices is rounded to their type. So it is fp16 in bf16 modes as well: unit vectors and
    scaled probabilities are within its range, and bf16 would round cosines to 1/256. A CPU has no such product, and
    rounds in the same places.
    """
    x, y = x.astype("float16"), y.astype("float16")
    if x.place.is_cpu_place():
        x, y = x.astype("float32"), y.astype("float32")
    return paddle.matmul(x, y, transpose_x, transpose_y).astype("float16").astype("float32")


def _target_logits(matrix: paddle.Tensor, target_rows: paddle.Tensor) -> paddle.Tensor:
    """Return the element of each sample's target class: (M, K) -> (M,). Undefined where target_rows is -1."""
    return paddle.take_along_axis(matrix, target_rows.clip(min=0).unsqueeze(1), 1, broadcast=False).squeeze(1)


def _scatter_targets(matrix: paddle.Tensor, target_rows: paddle.Tensor, values: paddle.Tensor) -> None:
    """Store values (M,) in the elements of the target classes, in place, where target_rows is not -1."""
    values = paddle.where(target_rows >= 0, values, _target_logits(matrix, target_rows))
    matrix.put_along_axis_(target_rows.clip(min=0).unsqueeze(1), values.unsqueeze(1), 1)
