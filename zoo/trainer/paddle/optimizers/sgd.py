"""SGD with momentum in Paddle; the formula is in zoo/optim/sgd.py.

paddle.optimizer.Momentum calls the same kernel on a CPU, but creates its buffers in the first step, which may be
skipped or follow the loading of a checkpoint. On a GPU it could not skip an update unless the host waited.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import paddle
from paddle import _C_ops

from zoo.trainer.paddle.optimizers.elementwise import Step, Tensors

BLOCK_SIZE = 1 << 24  # elements of a gradient that are multiplied by its factor at once
NO_MASTER: Any = None  # parameters are fp32 in every mode, so that they need no copy of themselves


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place, if finite; gradients are not changed."""
    if not has_host_decision(tensors[0].weight):
        _update_on_device(tensors, spec.momentum, step.finite)
    elif step.finite:
        merged(tensors, spec.momentum)


def has_host_decision(parameter: paddle.Tensor) -> bool:
    """Return whether the host decides on an update, as it does where it waits for nothing: in fp32 on a CPU.

    Paddle's fused kernel updates in a fifth of the time. It has no argument to skip an update, and rounds to fp32.
    """
    return parameter.place.is_cpu_place() and parameter.dtype == paddle.float32


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


def _update_on_device(tensors: Sequence[Tensors], momentum: float, finite: paddle.Tensor) -> None:
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
    """Add factor * y to x in place; factor (1,)."""
    if x.dtype == paddle.float64:
        x.add_(y * factor)  # rounded twice, as an exact run is defined
    else:
        _C_ops.sgd_(x, -factor, y, NO_MASTER, False)  # x -= lr * gradient, without a copy of y


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
