"""Gradient descent with momentum, for all parameters in one call."""

from collections.abc import Callable

import paddle
from paddle import _C_ops


class Momentum:
    """velocity = momentum * velocity + (rescale * gradient + decay * p); p -= lr * factor * velocity.

    paddle.optimizer.Momentum calls the same kernel, but makes its momentum_buffers at the first step, which may be skipped or
    come after a load.
    """

    def __init__(
        self, trained: dict[str, paddle.Tensor], param_group: Callable[[str], tuple[float, float]], momentum: float
    ):
        self.parameters, self.momentum = trained, momentum
        self.momentum_buffers = {name: paddle.zeros_like(tensor) for name, tensor in trained.items()}
        self.param_groups = {name: param_group(name) for name in trained}

    def step(self, lr: float, rescale: float) -> None:
        """Update every parameter that has a gradient, in place. lr and rescale may change from step to step."""
        names = [name for name, tensor in self.parameters.items() if tensor.grad is not None]
        gradients = [self.parameters[name].grad for name in names]
        if rescale != 1:  # the kernel has an argument for this, which it ignores on a CPU
            gradients = [gradient * rescale for gradient in gradients]
        momentum_update(
            [self.parameters[name] for name in names],
            gradients,
            [self.momentum_buffers[name] for name in names],
            [lr * self.param_groups[name][0] for name in names],
            [self.param_groups[name][1] for name in names],
            self.momentum,
        )


def total_norm(gradients: list[paddle.Tensor]) -> paddle.Tensor:
    """Of all elements, (1,). paddle.linalg.norm adds one to the other on a CPU, and of millions loses some percent."""
    return paddle.add_n([_C_ops.squared_l2_norm(gradient) for gradient in gradients]).sqrt()


def momentum_update(
    parameters: list[paddle.Tensor],
    gradients: list[paddle.Tensor],
    momentum_buffers: list[paddle.Tensor],
    rates: list[float],
    decays: list[float],
    momentum: float,
) -> None:
    """velocity = momentum * velocity + (gradient + decay * p); p -= rate * velocity: in place, for all at once."""
    made = {rate: paddle.full((1,), rate) for rate in set(rates)}
    _C_ops.merged_momentum_(
        parameters,
        gradients,
        momentum_buffers,
        [made[rate] for rate in rates],
        None,
        momentum,
        False,
        ["l2_decay"] * len(parameters),
        decays,
        False,
        1.0,
    )
