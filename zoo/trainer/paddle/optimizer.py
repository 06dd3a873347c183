"""Slots of all trained parameters, and their update by the optimizer of the plan.

SGD is by Paddle's fused kernels, in a fifth of the formula's time. paddle.optimizer.Momentum calls the same kernel on a
CPU, but creates its buffers in the first step, which may be skipped or follow the loading of a checkpoint. On a GPU it
could not skip an update unless the host waited.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import _C_ops

from zoo.optim.base import Math
from zoo.trainer.paddle import ops
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Plan

BLOCK_SIZE = 1 << 24  # elements of a gradient that are multiplied by its factor at once
NO_MASTER: Any = None  # parameters are fp32 in every mode, so that they need no copy of themselves


class Tensors(NamedTuple):
    """A parameter, or the rows of it that an update uses, and what belongs to it.

    Attributes:
        weight: updated in place.
        gradient: scaled by the loss scale; not changed.
        slots: of the optimizer, in the order of its specification; updated in place.
        lr: learning rate, with the parameter's factor.
        factor: of the gradient, for loss scale and clipping, float64 ().
        is_shard: whether other ranks hold other rows of the parameter.
    """

    weight: paddle.Tensor
    gradient: paddle.Tensor
    slots: tuple[paddle.Tensor, ...]
    lr: float
    weight_decay: float
    factor: paddle.Tensor
    is_shard: bool = False


def sgd(spec: Any, tensors: Sequence[Tensors], finite: paddle.Tensor) -> None:
    """Update fp32 parameters in place, if finite; gradients are not changed.

    On a CPU, where the host waits for nothing, it decides whether to update: the kernel has no argument to skip.
    """
    if not tensors[0].weight.place.is_cpu_place():
        update_on_device(tensors, spec.momentum, finite)
    elif finite:
        merged(tensors, spec.momentum)


def sgd_nesterov(spec: Any, tensors: Sequence[Tensors], finite: paddle.Tensor) -> None:
    """Update fp32 parameters on a CPU in place, if finite."""
    if finite:
        merged(tensors, spec.momentum, nesterov=True)


def merged(tensors: Sequence[Tensors], momentum: float, nesterov: bool = False) -> None:
    """Update in place by the fused kernel of a CPU."""
    lrs = {lr: paddle.full((1,), lr) for lr in {each.lr for each in tensors}}
    # The kernel has an argument for the factor of the gradients, but ignores it on a CPU.
    factors = [float(each.factor) for each in tensors]
    unscaled = [each for each, factor in zip(tensors, factors) if factor == 1]
    scaled = [
        block._replace(gradient=block.gradient.scale(factor))
        for each, factor in zip(tensors, factors)
        if factor != 1
        for block in _blocks(each)
    ]
    for group in ([unscaled] if unscaled else []) + [[block] for block in scaled]:
        _C_ops.merged_momentum_(
            [each.weight for each in group],
            [each.gradient for each in group],
            [each.slots[0] for each in group],
            [lrs[each.lr] for each in group],
            NO_MASTER,
            momentum,
            nesterov,
            ["l2_decay"] * len(group),
            [each.weight_decay for each in group],
            False,
            1.0,
        )


def update_on_device(tensors: Sequence[Tensors], momentum: float, finite: paddle.Tensor) -> None:
    """Launch an update that skips itself: with the old momentum and a learning rate of 0."""
    dtype, skipped = tensors[0].weight.dtype, paddle.logical_not(finite)
    numbers = {
        number: paddle.full((1,), number, dtype) for number in {momentum, *(each.weight_decay for each in tensors)}
    }
    lrs = {lr: paddle.full((1,), -lr, dtype) * finite.astype(dtype) for lr in {each.lr for each in tensors}}
    for whole in tensors:
        factor = whole.factor.astype(dtype)
        for block in _blocks(whole):
            (buffer,) = block.slots
            total = block.gradient * factor
            if block.weight_decay:
                _add_product(total, numbers[block.weight_decay], block.weight)
            _add_product(total, numbers[momentum], buffer)
            paddle.where_(skipped.expand(buffer.shape), buffer, total)
            _add_product(block.weight, lrs[block.lr], buffer)


def _add_product(x: paddle.Tensor, factor: paddle.Tensor, y: paddle.Tensor) -> None:
    """Add factor * y to x in place, without a copy of y; factor (1,)."""
    _C_ops.sgd_(x, -factor, y, NO_MASTER, False)  # x -= lr * gradient


def _blocks(tensors: Tensors) -> Iterator[Tensors]:
    """Yield the rows of a parameter, so that a copy of them stays small: views."""
    weight, gradient, (buffer,) = tensors[:3]
    rows = max(1, BLOCK_SIZE // max(1, weight.size // len(weight)))
    if len(weight) <= rows:
        yield tensors
        return
    for first in range(0, len(weight), rows):
        weight_rows, gradient_rows, *slots = (ops.row_view(each, first, rows) for each in (weight, gradient, buffer))
        yield tensors._replace(weight=weight_rows, gradient=gradient_rows, slots=tuple(slots))


KERNELS: dict[str, Callable[[Any, Sequence[Tensors], paddle.Tensor], None]] = {"sgd": sgd}
CPU_KERNELS = {**KERNELS, "sgd_nesterov": sgd_nesterov}


class Factors(NamedTuple):
    """Factors of the gradients, for loss scale and clipping, float64 (): those of shards are sums over ranks."""

    model: paddle.Tensor
    shards: paddle.Tensor


class Optimizer:
    """The optimizer of the plan.

    Args:
        plan: specification of the optimizer, and hyper-parameters of each parameter.
        parameters: trained parameters of the model, by canonical name.

    Attributes:
        slots: by name of the parameter, in the order of the specification.
    """

    def __init__(
        self,
        plan: Plan,
        parameters: Mapping[str, paddle.Tensor],
        shards: Mapping[str, Any],
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

    def _rows(self, name: str, shard: Any) -> tuple[paddle.Tensor, ...]:
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
