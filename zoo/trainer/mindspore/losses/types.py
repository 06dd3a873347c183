"""Types and numbers of losses in MindSpore."""

from collections.abc import Callable
from typing import Any

from mindspore import Tensor, ops
from mindspore import dtype as mstype

from zoo.trainer.mindspore.fp64 import constant
from zoo.trainer.plan import Plan


def types(plan: Plan | None) -> tuple[Any, Callable[[float], Any]]:
    """Return the floating-point type of losses, and what makes a number of the settings an operand of that type."""
    if plan is not None and plan.mode.is_fp64:
        return mstype.float64, constant
    return mstype.float32, float


def log_softmax(logits: Tensor) -> Tensor:
    """Return the logarithm of the softmax over axis 1."""
    if logits.dtype == mstype.float32:
        return ops.log_softmax(logits, 1)
    shifted = logits - ops.stop_gradient(logits.max(1, keepdims=True))  # MindSpore's is exact to 1e-6 only
    return shifted - ops.log(ops.exp(shifted).sum(1, keepdims=True))


def log_sigmoid(x: Tensor) -> Tensor:
    """Return the logarithm of the sigmoid, with its exact derivative also at 0."""
    shift = ops.stop_gradient(ops.maximum(-x, ops.zeros_like(x)))
    return -(shift + ops.log1p(ops.exp(-shift) - 1 + ops.exp(-x - shift)))


def one_hot(labels: Tensor, classes: int, dtype: Any) -> Tensor:
    """Return 1 for the class of a label and 0 for others: (N, ...) -> (N, K, ...)."""
    numbers = ops.arange(classes).astype(labels.dtype).reshape((1, classes) + (1,) * (labels.ndim - 1))
    return (labels.expand_dims(1) == numbers).astype(dtype)


def any_in_rows(x: Tensor) -> Tensor:
    """Return 1 for a row of zeros and ones that has a one, and else 0: (N, P) -> (N,)."""
    count = x.sum(1)
    return ops.minimum(count, ops.ones_like(count))


def argsort_descending(x: Tensor) -> Tensor:
    """Return the indices that sort rows in descending order."""
    if x.dtype == mstype.float32:
        return ops.sort(x, 1, True)[1]
    return ops.topk(x, x.shape[1])[1]  # on a CPU, ops.sort rounds to fp32
