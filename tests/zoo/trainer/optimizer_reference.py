"""The optimizers in numpy and float64, one parameter at a time, from their papers (zoo/optim has the sources)."""

import importlib
from functools import partial

import numpy as np


class Reference:
    """State of an optimizer, by slot and parameter.

    Args:
        spec: hyper-parameters.
        rounded: rounds numbers that are sums or powers, as an exact run does; else the identity.
    """

    def __init__(self, spec, rounded=lambda number: number):
        self.spec, self.rounded, self.slots, self.applied = spec, rounded, {}, 0

    def slot(self, name, parameter, like):
        return self.slots.get((name, parameter), np.zeros_like(like))

    def update(self, parameter, weight, gradient, rate, decay):
        """Return the new weight. `applied` is the number of this update, from 1."""
        new, slots = self.formula()(parameter, weight, gradient, rate, decay)
        self.slots.update(((slot, parameter), value) for slot, value in slots.items())
        return new

    def formula(self):
        """Return the method of the optimizer's name, or `update` of the file optimizer_references/<name>.py."""
        if hasattr(self, self.spec.name):
            return getattr(self, self.spec.name)
        module = importlib.import_module(f"tests.zoo.trainer.optimizer_references.{self.spec.name}")
        return partial(module.update, self)

    def sgd(self, parameter, weight, gradient, rate, decay):
        velocity = self.spec.momentum * self.slot("momentum", parameter, weight) + (gradient + decay * weight)
        return weight - rate * velocity, {"momentum": velocity}

    def sgd_nesterov(self, parameter, weight, gradient, rate, decay):
        slope = gradient + decay * weight
        velocity = self.spec.momentum * self.slot("momentum", parameter, weight) + slope
        return weight - rate * (slope + self.spec.momentum * velocity), {"momentum": velocity}

    def lars(self, parameter, weight, gradient, rate, decay):
        slope = gradient + decay * weight
        length, steepness = np.sqrt((weight**2).sum()), np.sqrt((gradient**2).sum())
        if weight.ndim > 1 and length > 0 and steepness > 0:
            trust = self.spec.trust_coefficient * length / (steepness + decay * length + self.spec.eps)
            slope = self.rounded(trust) * slope
        velocity = self.spec.momentum * self.slot("momentum", parameter, weight) + slope
        return weight - rate * velocity, {"momentum": velocity}

    def adaptive(self, parameter, weight, gradient, decay):
        spec = self.spec
        mean = spec.beta1 * self.slot("mean", parameter, weight) + (1 - spec.beta1) * gradient
        square = spec.beta2 * self.slot("square", parameter, weight) + (1 - spec.beta2) * (gradient * gradient)
        unbiased_mean = mean / self.rounded(1 - spec.beta1**self.applied)
        unbiased_square = square / self.rounded(1 - spec.beta2**self.applied)
        step = unbiased_mean / (np.sqrt(unbiased_square) + spec.eps) + decay * weight
        return step, {"mean": mean, "square": square}

    def adamw(self, parameter, weight, gradient, rate, decay):
        step, slots = self.adaptive(parameter, weight, gradient, decay)
        return weight - rate * step, slots

    def lamb(self, parameter, weight, gradient, rate, decay):
        step, slots = self.adaptive(parameter, weight, gradient, decay)
        length, stride = np.sqrt((weight**2).sum()), np.sqrt((step**2).sum())
        if weight.ndim > 1 and length > 0 and stride > 0:
            step = self.rounded(length / stride) * step
        return weight - rate * step, slots
