"""SGD with momentum for all parameters in one kernel call."""

from collections.abc import Callable
from typing import Any

import paddle
from paddle import _C_ops

from zoo.trainer.protocol import ParamGroup


class Momentum:
    """SGD: buffer = momentum * buffer + (rescale * gradient + weight_decay * p); p -= lr * lr_scale * buffer.

    paddle.optimizer.Momentum calls the same kernel, but creates its buffers in the first step, which may be skipped or
    follow the loading of a checkpoint.
    """

    def __init__(self, parameters: dict[str, paddle.Tensor], param_group: Callable[[str], ParamGroup], momentum: float):
        self.parameters, self.momentum = parameters, momentum
        self.momentum_buffers = {name: paddle.zeros_like(tensor) for name, tensor in parameters.items()}
        self.param_groups = {name: param_group(name) for name in parameters}

    def step(self, lr: float, rescale: float) -> None:
        """Update every parameter that has a gradient, in place. lr and rescale may change between steps."""
        gradients = {name: tensor.grad for name, tensor in self.parameters.items() if tensor.grad is not None}
        if rescale != 1:  # the kernel has an argument for it, but ignores it on a CPU
            gradients = {name: gradient * rescale for name, gradient in gradients.items()}
        groups = [self.param_groups[name] for name in gradients]
        momentum_update(
            [self.parameters[name] for name in gradients],
            list(gradients.values()),
            [self.momentum_buffers[name] for name in gradients],
            [lr * lr_scale for lr_scale, _ in groups],
            [weight_decay for _, weight_decay in groups],
            self.momentum,
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
) -> None:
    """Update in place: buffer = momentum * buffer + (gradient + weight_decay * p); p -= lr * buffer."""
    if parameters[0].dtype == paddle.float64:
        for parameter, gradient, buffer, lr, decay in zip(
            parameters, gradients, momentum_buffers, lrs, weight_decays, strict=True
        ):
            paddle.assign(momentum * buffer + (gradient + decay * parameter), buffer)
            paddle.assign(parameter - lr * buffer, parameter)
        return  # the kernel rounds its arguments to fp32
    master_parameters: Any = None  # parameters are fp32
    lr_tensors = {lr: paddle.full((1,), lr) for lr in set(lrs)}
    _C_ops.merged_momentum_(
        parameters,
        gradients,
        momentum_buffers,
        [lr_tensors[lr] for lr in lrs],
        master_parameters,
        momentum,
        False,
        ["l2_decay"] * len(parameters),
        weight_decays,
        False,
        1.0,
    )
