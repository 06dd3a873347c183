"""SGD with momentum that skips an update whose gradient is not finite."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import paddle
from paddle import _C_ops

from zoo.trainer.plan import ParamGroup

BLOCK_SIZE = 1 << 24  # elements of a gradient that are multiplied by its factor at once
NO_MASTER: Any = None  # parameters are fp32 in every mode, so that they need no copy of themselves
Tensors = tuple[paddle.Tensor, ...]


class Momentum:
    """SGD: buffer = momentum * buffer + (factor * gradient + weight_decay * p); p -= lr * lr_scale * buffer.

    paddle.optimizer.Momentum calls the same kernel on a CPU, but creates its buffers in the first step, which may be
    skipped or follow the loading of a checkpoint. On a GPU it could not skip an update unless the host waited.
    """

    def __init__(self, parameters: dict[str, paddle.Tensor], param_group: Callable[[str], ParamGroup], momentum: float):
        self.parameters, self.momentum = parameters, momentum
        self.momentum_buffers = {name: paddle.zeros_like(tensor) for name, tensor in parameters.items()}
        self.param_groups = {name: param_group(name) for name in parameters}

    def step(self, lr: float, factor: paddle.Tensor, finite: paddle.Tensor) -> None:
        """Update every parameter that has a gradient, in place; see momentum_update."""
        gradients = {name: tensor.grad for name, tensor in self.parameters.items() if tensor.grad is not None}
        groups = [self.param_groups[name] for name in gradients]
        momentum_update(
            [self.parameters[name] for name in gradients],
            list(gradients.values()),
            [self.momentum_buffers[name] for name in gradients],
            [lr * lr_scale for lr_scale, _ in groups],
            [weight_decay for _, weight_decay in groups],
            self.momentum,
            factor,
            finite,
        )


def total_norm(gradients: list[paddle.Tensor]) -> paddle.Tensor:
    """Return the norm of all elements, (1,).

    paddle.linalg.norm adds elements one after the other on a CPU, and of millions loses some percent.
    """
    return paddle.add_n([_C_ops.squared_l2_norm(gradient) for gradient in gradients]).sqrt()


def momentum_update(
    parameters: list[paddle.Tensor],
    gradients: list[paddle.Tensor],
    momentum_buffers: list[paddle.Tensor],
    lrs: list[float],
    weight_decays: list[float],
    momentum: float,
    factor: paddle.Tensor,
    finite: paddle.Tensor,
) -> None:
    """Update in place, if finite: buffer = momentum * buffer + (factor * gradient + decay * p); p -= lr * buffer.

    Args:
        parameters, gradients, momentum_buffers, lrs, weight_decays: one each; gradients are not changed.
        momentum: of all parameters.
        factor: of the gradients, float64 ().
        finite: bool (); where it is False, nothing changes.
    """
    tensors = list(zip(parameters, gradients, momentum_buffers))
    if not has_host_decision(parameters[0]):
        _update_on_device(tensors, lrs, weight_decays, momentum, factor.astype(parameters[0].dtype), finite)
    elif finite:
        _update_on_host(tensors, lrs, weight_decays, momentum, float(factor))


def has_host_decision(parameter: paddle.Tensor) -> bool:
    """Return whether the host decides on an update, as it does where it waits for nothing: in fp32 on a CPU.

    Paddle's fused kernel updates in a fifth of the time. It has no argument to skip an update, and rounds to fp32.
    """
    return parameter.place.is_cpu_place() and parameter.dtype == paddle.float32


def _update_on_host(
    tensors: Sequence[Tensors], lrs: list[float], weight_decays: list[float], momentum: float, factor: float
) -> None:
    lr_tensors = {lr: paddle.full((1,), lr) for lr in set(lrs)}
    if factor == 1:
        groups = [(tensors, [lr_tensors[lr] for lr in lrs], weight_decays)]
    else:  # the kernel has an argument for it, but ignores it on a CPU
        groups = [
            ([(parameter, gradient.scale(factor), buffer)], [lr_tensors[lr]], [weight_decay])
            for whole, lr, weight_decay in zip(tensors, lrs, weight_decays)
            for parameter, gradient, buffer in _blocks(whole)
        ]
    for group, group_lrs, group_decays in groups:
        parameters, gradients, buffers = (list(column) for column in zip(*group))
        _C_ops.merged_momentum_(
            parameters,
            gradients,
            buffers,
            group_lrs,
            NO_MASTER,
            momentum,
            False,
            ["l2_decay"] * len(group),
            group_decays,
            False,
            1.0,
        )


def _update_on_device(
    tensors: Sequence[Tensors],
    lrs: list[float],
    weight_decays: list[float],
    momentum: float,
    factor: paddle.Tensor,
    finite: paddle.Tensor,
) -> None:
    """Launch an update that skips itself: with the old momentum and a learning rate of 0."""
    dtype, skipped = factor.dtype, paddle.logical_not(finite)
    numbers = {number: paddle.full((1,), number, dtype) for number in {momentum, *weight_decays}}
    lr_tensors = {lr: paddle.full((1,), -lr, dtype) * finite.astype(dtype) for lr in set(lrs)}
    for whole, lr, weight_decay in zip(tensors, lrs, weight_decays):
        for parameter, gradient, buffer in _blocks(whole):
            total = gradient * factor
            if weight_decay:
                _add_product(total, numbers[weight_decay], parameter)
            _add_product(total, numbers[momentum], buffer)
            paddle.where_(skipped.expand(buffer.shape), buffer, total)
            _add_product(parameter, lr_tensors[lr], buffer)


def _add_product(x: paddle.Tensor, factor: paddle.Tensor, y: paddle.Tensor) -> None:
    """Add factor * y to x in place; factor (1,)."""
    if x.dtype == paddle.float64:
        x.add_(y * factor)  # rounded twice, as an exact run is defined
    else:
        _C_ops.sgd_(x, -factor, y, NO_MASTER, False)  # x -= lr * gradient, without a copy of y


def _blocks(tensors: Tensors) -> Iterator[Tensors]:
    """Yield the rows of tensors of one shape, so that a copy of them stays small: views."""
    rows = max(1, BLOCK_SIZE // max(1, tensors[0].size // len(tensors[0])))
    if len(tensors[0]) <= rows:
        yield tensors
        return
    for first in range(0, len(tensors[0]), rows):
        yield tuple(tensor[first : first + rows] for tensor in tensors)
