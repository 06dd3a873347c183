"""AdamW in MindSpore; the formula is in zoo/optim/adamw.py."""

import math

from mindspore import ops

from zoo.trainer.mindspore.optimizers.elementwise import Elementwise
from zoo.trainer.plan import Plan


class Optimizer(Elementwise):
    """Update of a parameter."""

    def __init__(self, plan: Plan, skips_on_host: bool, world_size: int):
        super().__init__(plan, skips_on_host, world_size)
        spec = plan.optimizer
        self.beta1, self.rest1 = self.number(spec.beta1), self.number(1 - spec.beta1)
        self.beta2, self.rest2 = self.number(spec.beta2), self.number(1 - spec.beta2)
        self.log_beta1, self.log_beta2 = (self.number(math.log(max(beta, 1e-300))) for beta in (spec.beta1, spec.beta2))
        self.eps = self.number(spec.eps)

    def formula(self, lr, applied, weight, gradient, weight_decay, is_decayed, is_matrix, mean, square):
        update, mean, square = self.direction(applied, weight, gradient, weight_decay, is_decayed, mean, square)
        return weight - lr * update, mean, square

    def direction(self, applied, weight, gradient, weight_decay, is_decayed, mean, square):
        """Return the update without the learning rate, and the new slots."""
        mean = self.beta1 * mean + self.rest1 * gradient
        square = self.beta2 * square + self.rest2 * (gradient * gradient)
        corrected_mean = mean / self.bias_correction(self.log_beta1, applied)
        corrected_square = square / self.bias_correction(self.log_beta2, applied)
        update = corrected_mean / (ops.sqrt(corrected_square) + self.eps)
        if is_decayed:
            update = update + weight_decay * weight
        return update, mean, square
