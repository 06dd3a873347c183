"""Slots of all trained parameters, and their update by the optimizer of the plan.

Fused kernels divide the gradients, and skip an update on the device. On a CPU they take a twentieth of the time of the
formulas in zoo/optim.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.optim.adamw import adamw as fused_adamw
from torch.optim.sgd import sgd as fused_sgd

from zoo.optim.base import Math
from zoo.trainer import sharding
from zoo.trainer.plan import Plan
from zoo.trainer.state import slot_key
from zoo.trainer.torch import ops
from zoo.trainer.torch.world import World


class Tensors(NamedTuple):
    """A parameter, or the rows of it that an update uses, and what belongs to it.

    Attributes:
        weight: updated in place.
        gradient: scaled by the loss scale; in fp32 divided in place.
        slots: of the optimizer, in the order of its specification; updated in place.
        lr: learning rate, with the parameter's factor.
        weight_decay: of the parameter.
        divisor: of the gradient, for loss scale and clipping, 0-d.
        is_shard: whether other ranks hold other rows of the parameter.
    """

    weight: torch.Tensor
    gradient: torch.Tensor
    slots: tuple[torch.Tensor, ...]
    lr: float
    weight_decay: float
    divisor: torch.Tensor
    is_shard: bool = False


def sgd(spec: Any, tensors: Sequence[Tensors], finite: torch.Tensor, applied: torch.Tensor) -> None:
    """Update in place, unless the gradient is not finite."""
    found_inf = (~finite).float()
    for members in with_same_numbers(tensors):
        fused_sgd(
            [each.weight for each in members],
            [each.gradient for each in members],
            [each.slots[0] for each in members],
            fused=True,
            grad_scale=members[0].divisor,
            found_inf=found_inf,
            lr=members[0].lr,
            weight_decay=members[0].weight_decay,
            momentum=spec.momentum,
            dampening=0.0,
            nesterov=spec.name == "sgd_nesterov",
            maximize=False,
        )


def adamw(spec: Any, tensors: Sequence[Tensors], finite: torch.Tensor, applied: torch.Tensor) -> None:
    """Update in place, unless the gradient is not finite."""
    found_inf = (~finite).float()
    for members in with_same_numbers(tensors):
        fused_adamw(
            [each.weight for each in members],
            [each.gradient for each in members],
            [each.slots[0] for each in members],
            [each.slots[1] for each in members],
            [],  # the largest squares, of AMSGrad
            list((applied - 1).expand(len(members)).clone().unbind()),  # one each, which PyTorch counts up
            fused=True,
            grad_scale=members[0].divisor,
            found_inf=found_inf,
            amsgrad=False,
            beta1=spec.beta1,
            beta2=spec.beta2,
            lr=members[0].lr,
            weight_decay=members[0].weight_decay,
            eps=spec.eps,
            maximize=False,
        )


def with_same_numbers(tensors: Sequence[Tensors]) -> Iterator[list[Tensors]]:
    """Yield parameters that a fused kernel can update at once: learning rate, weight decay and divisor are the same."""

    def numbers(each: Tensors) -> tuple[float, float, bool]:
        return each.lr, each.weight_decay, each.is_shard

    yield from (list(group) for _, group in groupby(sorted(tensors, key=numbers), numbers))


KERNELS: dict[str, Callable[[Any, Sequence[Tensors], torch.Tensor, torch.Tensor], None]] = {
    "sgd": sgd,
    "sgd_nesterov": sgd,
    "adamw": adamw,
}


class Divisors(NamedTuple):
    """Divisors of the gradients, for loss scale and clipping, 0-d; they differ where sharded ones are not clipped."""

    model: torch.Tensor
    shards: torch.Tensor


class Optimizer:
    """The optimizer of the plan, which PyTorch's own could not be: they create their slots in the first update.

    Args:
        plan: specification of the optimizer, and hyper-parameters of each parameter.
        parameters: trained parameters of the model, by canonical name.
        shards: sharded parameters.
        world: this process.

    Attributes:
        slots: by name of the parameter, in the order of the specification; perhaps only those of this rank.
        ranks: of each parameter of the model the rank that updates it; empty if all ranks update all.
    """

    def __init__(
        self,
        plan: Plan,
        parameters: Mapping[str, torch.Tensor],
        shards: Mapping[str, Any],
        world: World,
    ):
        self.plan, self.parameters, self.shards, self.world = plan, parameters, shards, world
        self.kernel = None if plan.mode.is_fp64 else KERNELS.get(plan.optimizer.name)
        self.math, self.shard_math = (Math(ops, ranks, plan.mode.rounds_gradients) for ranks in (1, world.size))
        self.ranks: dict[str, int] = {}
        if plan.shard_optimizer and world.size > 1:
            self.ranks = sharding.partition({name: tensor.numel() for name, tensor in parameters.items()}, world.size)
        own = {name: tensor for name, tensor in parameters.items() if self.ranks.get(name, world.rank) == world.rank}
        weights = {**own, **{name: shard.values.detach() for name, shard in shards.items()}}
        self.slots = {
            name: tuple(torch.zeros_like(tensor) for _ in plan.optimizer.slots) for name, tensor in weights.items()
        }

    def named_slots(self) -> dict[str, torch.Tensor]:
        """Return every slot by its key in a state dict."""
        return {
            slot_key(slot, name): tensor
            for name, tensors in self.slots.items()
            for slot, tensor in zip(self.plan.optimizer.slots, tensors)
        }

    @property
    def is_sharded(self) -> bool:
        """Whether other ranks hold slots of the model's parameters."""
        return bool(self.ranks)

    def all_slots(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every slot with its key in a state dict; called by all ranks if other ranks hold some of them."""
        if not self.is_sharded:
            yield from self.named_slots().items()
            return
        for name, parameter in self.parameters.items():
            for i, slot in enumerate(self.plan.optimizer.slots):
                tensor = (
                    self.slots[name][i].contiguous() if name in self.slots else parameter.new_empty(parameter.shape)
                )
                dist.broadcast(tensor, self.ranks[name])
                yield slot_key(slot, name), tensor
        for name in self.shards:
            yield from ((slot_key(slot, name), x) for slot, x in zip(self.plan.optimizer.slots, self.slots[name]))

    def keys_of_others(self) -> set[str]:
        """Return the keys in a state dict of the slots that other ranks hold."""
        others = self.parameters.keys() - self.slots.keys()
        return {slot_key(slot, name) for name in others for slot in self.plan.optimizer.slots}

    @torch.no_grad()
    def step(self, lr: float, divisors: Divisors, finite: torch.Tensor, applied: torch.Tensor) -> None:
        """Update every parameter that has a gradient; of a shard whose rows are sampled only these.

        Args:
            lr: learning rate.
            divisors: of the gradients; in fp32, gradients are divided in place unless the update is skipped.
            finite: 0-d bool; where it is False, nothing changes.
            applied: number of the update without those that were skipped, from 1.
        """
        tensors = [
            self._tensors(name, parameter.detach(), parameter.grad, self.slots[name], lr, divisors.model)
            for name, parameter in self.parameters.items()
            if parameter.grad is not None and name in self.slots
        ]
        rows = {}
        for name, shard in self.shards.items():
            slots = self.slots[name]
            if shard.index is not None:
                slots = tuple(slot[shard.index] for slot in slots)
            weight, gradient = shard.active_rows.detach(), shard.active_rows.grad
            assert gradient is not None
            rows[name] = self._tensors(name, weight, gradient, slots, lr, divisors.shards, is_shard=True)
        if self.kernel is not None:
            self.kernel(self.plan.optimizer, [*tensors, *rows.values()], finite, applied)
        else:
            for each in (*tensors, *rows.values()):
                self._update(each, finite, applied)
        self._send_weights()
        for name, shard in self.shards.items():
            if shard.index is not None:
                shard.values.detach()[shard.index] = rows[name].weight
                for slot, row in zip(self.slots[name], rows[name].slots):
                    slot[shard.index] = row

    def _update(self, each: Tensors, finite: torch.Tensor, applied: torch.Tensor) -> None:
        """Update a parameter in place by the optimizer's formula, unless the update is skipped."""
        math = self.shard_math if each.is_shard else self.math
        if self.plan.mode.is_fp64:  # rounded once, as in every framework
            gradient = each.gradient * math.rounded(1 / each.divisor)
        else:  # in place, as fused kernels do
            gradient = each.gradient.div_(torch.where(finite, each.divisor, 1))
        step, slots = self.plan.optimizer.direction(math, each.weight, gradient, each.slots, each.weight_decay, applied)
        new = each.weight - each.lr * step, *slots
        for tensor, value in zip((each.weight, *each.slots), new, strict=True):
            tensor.copy_(torch.where(finite, value, tensor))

    def _send_weights(self) -> None:
        """Send the parameters that this rank has updated, as one tensor, and receive those of the others."""
        for rank in range(self.world.size if self.is_sharded else 0):
            tensors = [tensor.detach() for name, tensor in self.parameters.items() if self.ranks[name] == rank]
            if not tensors:
                continue
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            dist.broadcast(flat, rank)
            if rank != self.world.rank:
                for tensor, values in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
                    tensor.copy_(values.view(tensor.shape))

    def _tensors(
        self,
        name: str,
        weight: torch.Tensor,
        gradient: torch.Tensor,
        slots: tuple[torch.Tensor, ...],
        lr: float,
        divisor: torch.Tensor,
        is_shard: bool = False,
    ) -> Tensors:
        lr_scale, weight_decay = self.plan.param_group(name)
        return Tensors(weight, gradient, slots, lr * lr_scale, weight_decay, divisor, is_shard)
