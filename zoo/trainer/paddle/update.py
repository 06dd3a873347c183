"""Gradient descent with momentum, for all parameters in one call."""
from typing import Callable, Dict, Tuple

import paddle
from paddle import _C_ops


class Momentum:
    """velocity = momentum * velocity + (rescale * gradient + decay * p); p -= lr * factor * velocity.

    paddle.optimizer.Momentum calls the same kernel, but makes its velocities at the first step, which may be skipped or
    come after a load.
    """

    def __init__(self, trained: Dict[str, paddle.Tensor], rule: Callable[[str], Tuple[float, float]], momentum: float):
        self.parameters, self.momentum = list(trained.values()), momentum
        self.velocity = {name: paddle.zeros_like(tensor) for name, tensor in trained.items()}
        self.factors, self.decays = ([rule(name)[i] for name in trained] for i in (0, 1))

    def step(self, lr: float, rescale: float) -> None:
        """Update every parameter in place. lr and rescale may change from step to step."""
        gradients = [tensor.grad for tensor in self.parameters]
        if rescale != 1:  # the kernel has an argument for this, which it ignores on a CPU
            gradients = [gradient * rescale for gradient in gradients]
        rates = {factor: paddle.full((1,), lr * factor) for factor in set(self.factors)}
        _C_ops.merged_momentum_(
            self.parameters, gradients, list(self.velocity.values()), [rates[factor] for factor in self.factors], None,
            self.momentum, False, ["l2_decay"] * len(self.parameters), self.decays, False, 1.0)
