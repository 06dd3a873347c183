"""The update of a parameter as MindSpore compiles it: the optimizer's formula, or a fused kernel."""

from mindspore import jit_class, nn
from mindspore import ops as mint

from zoo.optim.base import Math
from zoo.trainer.mindspore import ops
from zoo.trainer.plan import Plan

jit_class(Math)


class ParameterUpdate(nn.Cell):
    """(lr, applied, finite, weight, gradient, lr_scale, weight_decay, *slots) -> done: an update in place.

    - lr: learning rate, 0-d;
    - applied: number of the update without those that were skipped, from 1, 0-d;
    - finite: 0-d bool; where it is False, nothing changes;
    - gradient: without loss scale, clipped;
    - lr_scale, weight_decay: of the parameter, Python numbers; in fp64 tensors.

    Args:
        plan: specification of the optimizer, and precision.
        skips_on_host: whether updates that are skipped are not called at all.
        ranks: that hold other rows of the parameter, this one included.
    """

    def __init__(self, plan: Plan, skips_on_host: bool, ranks: int = 1):
        super().__init__()
        self.spec = ops.compiled(plan.optimizer)
        self.math, self.ops = Math(ops, ranks, plan.mode.rounds_gradients), ops
        self.skips_on_host = skips_on_host
        self.kernel = None
        if skips_on_host and not plan.mode.is_fp64 and plan.optimizer.name in KERNELS:
            self.kernel = KERNELS[plan.optimizer.name](plan.optimizer)

    def construct(self, lr, applied, finite, weight, gradient, lr_scale, weight_decay, *slots):
        if self.kernel is not None:
            return self.kernel(lr, weight, gradient, lr_scale, weight_decay, *slots)
        new, old = self.formula(lr, applied, weight, gradient, lr_scale, weight_decay, *slots), (weight, *slots)
        done: tuple = ()
        for i in range(len(old)):
            done += (mint.assign(old[i], self.selected(finite, new[i], old[i])),)
        return done

    def formula(self, lr, applied, weight, gradient, lr_scale, weight_decay, *slots):
        """Return the new weight and the new slots."""
        step, new_slots = self.spec.direction(self.math, weight, gradient, slots, weight_decay, applied)
        return (weight - lr * self.math.number(lr_scale, weight) * step,) + new_slots

    def selected(self, finite, new, old):
        """Return the new values, where an update is to be skipped on the device the old ones."""
        return new if self.skips_on_host else mint.select(finite.broadcast_to(new.shape), new, old)


class Momentum(nn.Cell):
    """SGD in fp32 by MindSpore's fused kernel, which cannot skip an update."""

    def __init__(self, spec):
        super().__init__()
        self.momentum, self.apply_momentum = float(spec.momentum), mint.ApplyMomentum()

    def construct(self, lr, weight, gradient, lr_scale, weight_decay, momentum):
        direction = gradient + weight_decay * weight if weight_decay > 0 else gradient
        return self.apply_momentum(weight, momentum, lr * lr_scale, direction, self.momentum)


KERNELS = {"sgd": Momentum}
