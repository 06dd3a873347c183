"""SGD in Paddle by its fused kernels, in a fifth of the formula's time; of the formulas in zoo/optim they are sgd.py's.

paddle.optimizer.Momentum calls the same kernel on a CPU, but creates its buffers in the first step, which may be
skipped or follow the loading of a checkpoint. On a GPU it could not skip an update unless the host waited.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import _C_ops

BLOCK_SIZE = 1 << 24  # elements of a gradient that are multiplied by its factor at once
NO_MASTER: Any = None  # parameters are fp32 in every mode, so that they need no copy of themselves


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


def sgd(spec: Any, tensors: Sequence[Tensors], finite: paddle.Tensor) -> None:
    """Update fp32 parameters in place, if finite; gradients are not changed.

    On a CPU, where the host waits for nothing, it decides whether to update: the kernel has no argument to skip.
    """
    if not tensors[0].weight.place.is_cpu_place():
        update_on_device(tensors, spec.momentum, finite)
    elif finite:
        merged(tensors, spec.momentum)


def sgd_nesterov(spec: Any, tensors: Sequence[Tensors], finite: paddle.Tensor) -> None:
    """Update fp32 parameters on a CPU in place, if finite."""
    if finite:
        merged(tensors, spec.momentum, nesterov=True)


def merged(tensors: Sequence[Tensors], momentum: float, nesterov: bool = False) -> None:
    """Update in place by the fused kernel of a CPU."""
    lrs = {lr: paddle.full((1,), lr) for lr in {each.lr for each in tensors}}
    # The kernel has an argument for the factor of the gradients, but ignores it on a CPU.
    factors = [float(each.factor) for each in tensors]
    unscaled = [each for each, factor in zip(tensors, factors) if factor == 1]
    scaled = [
        block._replace(gradient=block.gradient.scale(factor))
        for each, factor in zip(tensors, factors)
        if factor != 1
        for block in _blocks(each)
    ]
    for group in ([unscaled] if unscaled else []) + [[block] for block in scaled]:
        _C_ops.merged_momentum_(
            [each.weight for each in group],
            [each.gradient for each in group],
            [each.slots[0] for each in group],
            [lrs[each.lr] for each in group],
            NO_MASTER,
            momentum,
            nesterov,
            ["l2_decay"] * len(group),
            [each.weight_decay for each in group],
            False,
            1.0,
        )


def update_on_device(tensors: Sequence[Tensors], momentum: float, finite: paddle.Tensor) -> None:
    """Launch an update that skips itself: with the old momentum and a learning rate of 0."""
    dtype, skipped = tensors[0].weight.dtype, paddle.logical_not(finite)
    numbers = {
        number: paddle.full((1,), number, dtype) for number in {momentum, *(each.weight_decay for each in tensors)}
    }
    lrs = {lr: paddle.full((1,), -lr, dtype) * finite.astype(dtype) for lr in {each.lr for each in tensors}}
    for whole in tensors:
        factor = whole.factor.astype(dtype)
        for block in _blocks(whole):
            (buffer,) = block.slots
            total = block.gradient * factor
            if block.weight_decay:
                _add_product(total, numbers[block.weight_decay], block.weight)
            _add_product(total, numbers[momentum], buffer)
            paddle.where_(skipped.expand(buffer.shape), buffer, total)
            _add_product(block.weight, lrs[block.lr], buffer)


def _add_product(x: paddle.Tensor, factor: paddle.Tensor, y: paddle.Tensor) -> None:
    """Add factor * y to x in place, without a copy of y; factor (1,)."""
    _C_ops.sgd_(x, -factor, y, NO_MASTER, False)  # x -= lr * gradient


def _blocks(tensors: Tensors) -> Iterator[Tensors]:
    """Yield the rows of a parameter, so that a copy of them stays small: views."""
    weight, gradient, (buffer,) = tensors[:3]
    rows = max(1, BLOCK_SIZE // max(1, weight.size // len(weight)))
    if len(weight) <= rows:
        yield tensors
        return
    for first in range(0, len(weight), rows):
        part = slice(first, first + rows)
        yield tensors._replace(weight=weight[part], gradient=gradient[part], slots=(buffer[part],))


KERNELS: dict[str, Callable[[Any, Sequence[Tensors], paddle.Tensor], None]] = {"sgd": sgd}
CPU_KERNELS = {**KERNELS, "sgd_nesterov": sgd_nesterov}
