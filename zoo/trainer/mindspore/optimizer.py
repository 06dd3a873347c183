"""The update of a parameter as MindSpore compiles it, by the optimizer's formula or a fused kernel; moving averages."""

from collections.abc import Mapping
from typing import Any

from mindspore import Parameter, ParameterTuple, jit_class, nn
from mindspore import dtype as mstype
from mindspore import ops as mint
from mindspore.common.initializer import initializer

from zoo.optim.base import Math
from zoo.optim.ema import Ema, moved
from zoo.optim.ema import rate as rate_of
from zoo.trainer.mindspore import ops
from zoo.trainer.mindspore.model import named_tensors
from zoo.trainer.plan import Plan
from zoo.trainer.state import ema_key

jit_class(Math)


class ParameterUpdate(nn.Cell):
    """(lr, applied, finite, weight, gradient, lr_scale, weight_decay, *slots) -> done: an update in place.

    - lr: learning rate, 0-d;
    - applied: number of the update without those that were skipped, from 1, 0-d;
    - finite: 0-d bool; where it is False, nothing changes;
    - gradient: without loss scale, clipped;
    - lr_scale, weight_decay: of the parameter, Python numbers; in fp64 tensors.

    Args:
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


class MovingAverage(nn.Cell):
    """(number, skipped, consecutive skips) -> done: take the present weights into the average, on the device.

    The arguments are the number of the update, from 1, and the counters of skipped ones behind it. If this one was
    skipped, nothing changes. A graph of its own, because that of the update has to change weights and statistics before
    they are read.

    Args:
        tensors: what is averaged, by canonical name.
        shards: sharded parameters among them.
        skips_on_host: whether the host decides on an update, as on a CPU, where it waits for nothing.

    Attributes:
        averages: of all tensors of the model and of this rank's rows of the shards, by canonical name.
    """

    def __init__(
        self,
        spec: Ema,
        model: nn.Cell,
        tensors: Mapping[str, Parameter],
        shards: Mapping[str, Any],
        dtype: mstype.Type,
        skips_on_host: bool,
    ):
        super().__init__()
        self.averages = named_tensors(model)
        for name, shard in shards.items():
            self.averages[name] = Parameter(initializer("zeros", shard.values.shape, dtype), requires_grad=False)
        for name, parameter in self.averages.items():
            parameter.name, parameter.requires_grad = ema_key(name), False
        self.targets, self.sources = ParameterTuple(self.averages.values()), ParameterTuple(tensors.values())
        self.last_rate = spec.last_rate
        self.warmup = spec.warmup
        self.ops = ops
        self.dtype = dtype
        self.skips_on_host, self.map = skips_on_host, mint.HyperMap()

    def construct(self, number, skipped, consecutive_skips):
        finite = consecutive_skips == 0
        rate = rate_of(self.ops, (number - skipped).astype(self.dtype), self.last_rate, self.warmup)
        if not self.skips_on_host:  # noqa: SIM114 - known to the compiler, unlike the other condition
            self.map(mint.partial(self.move, rate, finite), self.targets, self.sources)
        elif finite:
            self.map(mint.partial(self.move, rate, finite), self.targets, self.sources)
        return finite

    def move(self, rate, finite, average, source):
        """Move an average towards a tensor by a share of the way, in place."""
        new = moved(average, source, rate)
        return mint.assign(average, new if self.skips_on_host else mint.select(finite, new, average))
