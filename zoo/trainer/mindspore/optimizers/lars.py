"""LARS in MindSpore; the formula is in zoo/optim/lars.py."""

from zoo.trainer.mindspore.optimizers.elementwise import Elementwise
from zoo.trainer.plan import Plan


class Optimizer(Elementwise):
    """Update of a parameter."""

    def __init__(self, plan: Plan, skips_on_host: bool, world_size: int):
        super().__init__(plan, skips_on_host, world_size)
        spec = plan.optimizer
        self.momentum, self.eps = self.number(spec.momentum), self.number(spec.eps)
        self.trust_coefficient = self.number(spec.trust_coefficient)

    def formula(self, lr, applied, weight, gradient, weight_decay, is_decayed, is_matrix, momentum):
        direction = gradient + weight_decay * weight if is_decayed else gradient
        if is_matrix:
            of_weight, of_gradient = self.norm(weight), self.norm(gradient)
            trust = self.trust_coefficient * of_weight / (of_gradient + weight_decay * of_weight + self.eps)
            direction = self.rounded(self.ratio_or_one(of_weight, of_gradient, trust)) * direction
        momentum = self.momentum * momentum + direction
        return weight - lr * momentum, momentum
