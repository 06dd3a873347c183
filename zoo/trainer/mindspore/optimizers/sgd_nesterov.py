"""SGD with Nesterov's momentum in MindSpore; the formula is in zoo/optim/sgd_nesterov.py."""

from zoo.trainer.mindspore.optimizers.elementwise import Elementwise
from zoo.trainer.plan import Plan


class Optimizer(Elementwise):
    """Update of a parameter."""

    def __init__(self, plan: Plan, skips_on_host: bool, world_size: int):
        super().__init__(plan, skips_on_host, world_size)
        self.momentum = self.number(plan.optimizer.momentum)

    def formula(self, lr, applied, weight, gradient, weight_decay, is_decayed, is_matrix, momentum):
        direction = gradient + weight_decay * weight if is_decayed else gradient
        momentum = self.momentum * momentum + direction
        return weight - lr * (direction + self.momentum * momentum), momentum
