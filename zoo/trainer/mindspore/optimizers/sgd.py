"""SGD with momentum in MindSpore; the formula is in zoo/optim/sgd.py."""

from mindspore import ops

from zoo.trainer.mindspore.optimizers.elementwise import Elementwise
from zoo.trainer.plan import Plan


class Optimizer(Elementwise):
    """Update of a parameter: where the host skips updates, and in fp32, by MindSpore's fused kernel."""

    def __init__(self, plan: Plan, skips_on_host: bool, world_size: int):
        super().__init__(plan, skips_on_host, world_size)
        self.momentum, self.apply_momentum = self.number(plan.optimizer.momentum), ops.ApplyMomentum()

    def construct(self, lr, applied, finite, weight, gradient, lr_scale, weight_decay, is_decayed, is_matrix, momentum):
        if self.is_fp64 or not self.skips_on_host:
            return super().construct(
                lr, applied, finite, weight, gradient, lr_scale, weight_decay, is_decayed, is_matrix, momentum
            )
        direction = gradient + weight_decay * weight if is_decayed else gradient
        return self.apply_momentum(weight, momentum, lr * lr_scale, direction, self.momentum)

    def formula(self, lr, applied, weight, gradient, weight_decay, is_decayed, is_matrix, momentum):
        direction = gradient + weight_decay * weight if is_decayed else gradient
        momentum = self.momentum * momentum + direction
        return weight - lr * momentum, momentum
