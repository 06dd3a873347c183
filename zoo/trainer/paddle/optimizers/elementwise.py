"""Tensors of an update, and its application without a fused kernel: an update that is not finite changes nothing."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import _C_ops

from zoo.trainer.paddle import parallel


class Tensors(NamedTuple):
    """A parameter, or the rows of it that an update uses, and what belongs to it.

    Attributes:
        weight: updated in place.
        gradient: scaled by the loss scale; not changed.
        slots: of the optimizer, in the order of its specification; updated in place.
        lr: learning rate, with the parameter's factor.
        weight_decay: of the parameter.
        factor: of the gradient, for loss scale and clipping, float64 ().
        is_shard: whether other ranks hold other rows of the parameter.
    """

    weight: paddle.Tensor
    gradient: paddle.Tensor
    slots: tuple[paddle.Tensor, ...]
    lr: float
    weight_decay: float
    factor: paddle.Tensor
    is_shard: bool = False


class Step(NamedTuple):
    """What all parameters have in common in an update.

    Attributes:
        finite: bool (); where it is False, nothing changes.
        applied: number of this update without those that were skipped, from 1; ().
        rounds: numbers of sums, such as norms, are rounded to fp32, as in an exact run.
    """

    finite: paddle.Tensor
    applied: paddle.Tensor
    rounds: bool

    def number(self, value: paddle.Tensor) -> paddle.Tensor:
        """Return a number that frameworks round differently; in an exact run, such that they have the same."""
        return value.astype("float32").astype(value.dtype) if self.rounds else value

    def bias_correction(self, beta: float) -> paddle.Tensor:
        """Return 1 - beta^t, float64 (1,), for the mean of t values that starts from 0."""
        power = paddle.full((1,), beta, "float64") ** self.applied.astype("float64")
        return self.number(1 - power)


Formula = Callable[[Any, Tensors, paddle.Tensor, Step], tuple[paddle.Tensor, ...]]


def apply(formula: Formula, spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update parameters one by one.

    Args:
        formula: (spec, tensors, gradient, step) -> the new weight and the new slots; changes nothing.
        spec: hyper-parameters.
    """
    for each in tensors:
        gradient = each.gradient * each.factor.astype(each.gradient.dtype)
        new = formula(spec, each, gradient, step)
        for tensor, value in zip((each.weight, *each.slots), new, strict=True):
            paddle.assign(paddle.where(step.finite, value, tensor), tensor)


def number(value: float, like: paddle.Tensor) -> paddle.Tensor:
    """Return a number as a tensor (1,), because Paddle may round others to fp32."""
    return paddle.full((1,), value, like.dtype)


def norm(x: paddle.Tensor, is_shard: bool) -> paddle.Tensor:
    """Return the L2 norm, (1,); of a shard over all ranks."""
    squares = _C_ops.squared_l2_norm(x).reshape([1])
    return (parallel.all_reduce(squares) if is_shard else squares).sqrt()


def ratio_or_one(x: paddle.Tensor, y: paddle.Tensor, ratio: paddle.Tensor) -> paddle.Tensor:
    """Return a trust ratio of two norms, 1 if one of them is 0; (1,)."""
    return paddle.where((x > 0) & (y > 0), ratio, paddle.ones_like(ratio))
