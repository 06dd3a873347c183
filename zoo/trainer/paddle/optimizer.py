"""Slots of all trained parameters, and their update by the optimizer of the plan."""

from collections.abc import Mapping
from typing import NamedTuple

import paddle
from paddle import _C_ops

from zoo.optim.base import Math
from zoo.trainer.paddle import ops
from zoo.trainer.paddle.kernels import CPU_KERNELS, KERNELS, Tensors
from zoo.trainer.paddle.partial_fc import ParameterShard
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Plan


class Factors(NamedTuple):
    """Factors of the gradients, for loss scale and clipping, float64 (): those of shards are sums over ranks."""

    model: paddle.Tensor
    shards: paddle.Tensor


class Optimizer:
    """The optimizer of the plan.

    Args:
        plan: specification of the optimizer, and hyper-parameters of each parameter.
        parameters: trained parameters of the model, by canonical name.
        shards: sharded parameters.
        world: this process.

    Attributes:
        slots: by name of the parameter, in the order of the specification.
    """

    def __init__(
        self,
        plan: Plan,
        parameters: Mapping[str, paddle.Tensor],
        shards: Mapping[str, ParameterShard],
        world: World,
    ):
        self.plan, self.parameters, self.shards = plan, parameters, shards
        kernels = CPU_KERNELS if world.name == "cpu" else KERNELS
        self.kernel = None if plan.mode.is_fp64 else kernels.get(plan.optimizer.name)  # they round to fp32
        self.math, self.shard_math = (Math(ops, ranks, plan.mode.rounds_gradients) for ranks in (1, world.size))
        weights = {**parameters, **{name: shard.values for name, shard in shards.items()}}
        self.slots = {
            name: tuple(paddle.zeros_like(tensor) for _ in plan.optimizer.slots) for name, tensor in weights.items()
        }

    def step(self, lr: float, factors: Factors, finite: paddle.Tensor, applied: paddle.Tensor) -> None:
        """Update every parameter that has a gradient; of a shard whose rows are sampled only these.

        Args:
            lr: learning rate.
            factors: of the gradients, which are not changed.
            finite: bool (); where it is False, nothing changes.
            applied: number of the update without those that were skipped, from 1.
        """
        tensors = [
            self._tensors(name, parameter, self.slots[name], lr, factors.model)
            for name, parameter in self.parameters.items()
            if parameter.grad is not None
        ]
        rows = {
            name: self._tensors(name, shard.active_rows, self._rows(name, shard), lr, factors.shards, is_shard=True)
            for name, shard in self.shards.items()
        }
        for group in (tensors, list(rows.values())):
            if group and self.kernel is not None:
                self.kernel(self.plan.optimizer, group, finite)
            elif group:
                for each in group:
                    self._update(each, finite, applied)
        for name, shard in self.shards.items():
            if shard.index is not None:
                paddle.scatter_(shard.values, shard.index, rows[name].weight)
                for slot, row in zip(self.slots[name], rows[name].slots):
                    paddle.scatter_(slot, shard.index, row)

    def _update(self, each: Tensors, finite: paddle.Tensor, applied: paddle.Tensor) -> None:
        """Update a parameter in place by the optimizer's formula, unless the update is skipped."""
        math, gradient = self.shard_math if each.is_shard else self.math, each.gradient
        gradient = gradient * each.factor.astype(gradient.dtype)
        step, slots = self.plan.optimizer.direction(math, each.weight, gradient, each.slots, each.weight_decay, applied)
        new = each.weight - ops.number(each.lr, gradient.dtype) * step, *slots
        for tensor, value in zip((each.weight, *each.slots), new, strict=True):
            paddle.assign(paddle.where(finite, value, tensor), tensor)

    def _rows(self, name: str, shard: ParameterShard) -> tuple[paddle.Tensor, ...]:
        """Return the slots of a shard's active rows."""
        if shard.index is None:
            return self.slots[name]
        return tuple(paddle.gather(slot, shard.index) for slot in self.slots[name])

    def _tensors(
        self,
        name: str,
        weight: paddle.Tensor,
        slots: tuple[paddle.Tensor, ...],
        lr: float,
        factor: paddle.Tensor,
        is_shard: bool = False,
    ) -> Tensors:
        lr_scale, weight_decay = self.plan.param_group(name)
        assert weight.grad is not None
        return Tensors(weight, weight.grad, slots, lr * lr_scale, weight_decay, factor, is_shard)


def total_norm(gradients: list[paddle.Tensor]) -> paddle.Tensor:
    """Return the norm of all elements, (1,).

    paddle.linalg.norm adds elements one after the other on a CPU, and of millions loses some percent.
    """
    return paddle.add_n([_C_ops.squared_l2_norm(gradient) for gradient in gradients]).sqrt()
