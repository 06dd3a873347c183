"""Slots of all trained parameters, and their update by the optimizer of the plan.

Fused kernels divide the gradients, and skip an update on the device. On a CPU they take a twentieth of the time of the
formulas in zoo/optim. Where there are none, a formula is computed for many parameters at once, as one vector: a GPU
would otherwise get twenty kernels for each of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.optim.adamw import adamw as fused_adamw
from torch.optim.sgd import sgd as fused_sgd

from zoo.optim.base import Math
from zoo.trainer.plan import Plan
from zoo.trainer.state import slot_key
from zoo.trainer.torch import ops
from zoo.trainer.torch.parallel import all_reduce
from zoo.trainer.torch.world import World


class Group(NamedTuple):
    """Parameters that are updated at once, or the rows of them that an update uses, and what belongs to them.

    Attributes:
        weights: updated in place.
        gradients: scaled by the loss scale; in fp32 divided in place.
        slots: of the optimizer, in the order of its specification, for each a tensor per parameter; updated in place.
        lr: learning rate, with the factor of these parameters.
        divisor: of the gradients, for loss scale and clipping, 0-d.
        is_shard: whether other ranks hold other rows of the parameters.
    """

    weights: list[torch.Tensor]
    gradients: list[torch.Tensor]
    slots: list[list[torch.Tensor]]
    lr: float
    weight_decay: float
    divisor: torch.Tensor
    is_shard: bool = False


def sgd(spec: Any, groups: Sequence[Group], finite: torch.Tensor, applied: torch.Tensor) -> None:
    """Update in place, unless the gradient is not finite."""
    found_inf = (~finite).float()
    for group in groups:
        fused_sgd(
            group.weights,
            group.gradients,
            [*group.slots[0]],  # a list of optional tensors by its type
            fused=True,
            grad_scale=group.divisor,
            found_inf=found_inf,
            lr=group.lr,
            weight_decay=group.weight_decay,
            momentum=spec.momentum,
            dampening=0.0,
            nesterov=spec.name == "sgd_nesterov",
            maximize=False,
        )


def adamw(spec: Any, groups: Sequence[Group], finite: torch.Tensor, applied: torch.Tensor) -> None:
    """Update in place, unless the gradient is not finite."""
    found_inf = (~finite).float()
    for group in groups:
        fused_adamw(
            group.weights,
            group.gradients,
            group.slots[0],
            group.slots[1],
            [],  # the largest squares, of AMSGrad
            list((applied - 1).expand(len(group.weights)).clone().unbind()),  # one each, which PyTorch counts up
            fused=True,
            grad_scale=group.divisor,
            found_inf=found_inf,
            amsgrad=False,
            beta1=spec.beta1,
            beta2=spec.beta2,
            lr=group.lr,
            weight_decay=group.weight_decay,
            eps=spec.eps,
            maximize=False,
        )


def in_memory_order(tensor: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return a view of a tensor with the axes in the order of the weight's in memory, such as channels last."""
    if weight.is_contiguous():
        return tensor
    return tensor.permute(sorted(range(weight.dim()), key=weight.stride, reverse=True))


def flattened(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return tensors as one vector; not a copy of a single one, which may be the rows of millions of classes."""
    return tensors[0].reshape(-1) if len(tensors) == 1 else torch.cat([tensor.reshape(-1) for tensor in tensors])


@dataclass(frozen=True)
class JoinedMath(Math):
    """Operations on parameters that are joined in one vector.

    Attributes:
        dimensions: of each of them; more than 3 count as 3.
        rows: length of the first axis of each of them.
    """

    sizes: tuple[int, ...] = ()
    dimensions: int = 1
    rows: tuple[int, ...] = ()

    def has_trust(self, weight: torch.Tensor) -> bool:
        return self.dimensions > 1

    def is_filter(self, weight: torch.Tensor) -> bool:
        return self.dimensions > 2

    def of_matrix(self, function: Any, x: torch.Tensor) -> torch.Tensor:
        whole = Math(ops, self.ranks, self.rounds)
        matrices = (part.view(rows, -1) for part, rows in zip(x.split(self.sizes), self.rows))
        return torch.cat([function(whole, matrix).reshape(-1) for matrix in matrices])

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        """Return the L2 norm of each parameter, of sharded ones over all ranks; (n,)."""
        return all_reduce(ops.squared_norms(x.split(self.sizes)), self.ranks).sqrt().to(x.dtype)

    def scaled(self, factor: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        repeats = ops.integers(self.sizes, x.device)
        return factor.repeat_interleave(repeats, output_size=x.numel()) * x


KERNELS: dict[str, Callable[[Any, Sequence[Group], torch.Tensor, torch.Tensor], None]] = {
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
        self.plan = plan
        self.parameters = parameters
        self.shards = shards
        self.world = world
        has_kernels = not plan.mode.is_fp64 and world.torch_device.type != "mps"
        self.kernel = KERNELS.get(plan.optimizer.name) if has_kernels else None
        self.ranks: dict[str, int] = {}
        if plan.shard_optimizer and world.size > 1:
            from zoo.trainer import sharding

            self.ranks = sharding.partition({name: tensor.numel() for name, tensor in parameters.items()}, world.size)
        own = {name: tensor for name, tensor in parameters.items() if self.ranks.get(name, world.rank) == world.rank}
        weights = {**own, **{name: shard.values.detach() for name, shard in shards.items()}}
        self.slots = {
            name: tuple(torch.zeros_like(tensor) for _ in plan.optimizer.slots) for name, tensor in weights.items()
        }

        def numbers(name: str) -> tuple[float, float, int]:
            return *plan.param_group(name), min(own[name].dim(), 3)

        self.groups = [(key, list(names)) for key, names in groupby(sorted(own, key=numbers), numbers)]

    def named_slots(self) -> dict[str, torch.Tensor]:
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
            divisors: of the gradients; in fp32, gradients are divided in place unless the update is skipped.
            finite: 0-d bool; where it is False, nothing changes.
            applied: number of the update without those that were skipped, from 1.
        """
        groups = [self._group(names, lr * lr_scale, decay, divisors) for (lr_scale, decay, _), names in self.groups]
        groups = [group for group in groups if group.weights]
        rows = {name: self._rows(name, shard, lr, divisors) for name, shard in self.shards.items()}
        if self.kernel is not None:
            self.kernel(self.plan.optimizer, [*groups, *rows.values()], finite, applied)
        else:
            for group in (*groups, *rows.values()):
                self._update(group, finite, applied)
        self._send_weights()
        for name, shard in self.shards.items():
            if shard.index is not None:
                shard.values.detach()[shard.index] = rows[name].weights[0]
                for slot, (row,) in zip(self.slots[name], rows[name].slots):
                    slot[shard.index] = row

    def _group(self, names: Sequence[str], lr: float, weight_decay: float, divisors: Divisors) -> Group:
        """Return those of some parameters of the model that have a gradient."""
        gradients = {name: gradient for name in names if (gradient := self.parameters[name].grad) is not None}
        weights = [self.parameters[name].detach() for name in gradients]
        slots = list(map(list, zip(*(self.slots[name] for name in gradients))))
        return Group(weights, list(gradients.values()), slots, lr, weight_decay, divisors.model)

    def _rows(self, name: str, shard: Any, lr: float, divisors: Divisors) -> Group:
        """Return the rows of a sharded parameter that an update uses."""
        slots = [[slot if shard.index is None else slot[shard.index]] for slot in self.slots[name]]
        (lr_scale, weight_decay), weight = self.plan.param_group(name), shard.active_rows
        return Group([weight.detach()], [weight.grad], slots, lr * lr_scale, weight_decay, divisors.shards, True)

    def _update(self, group: Group, finite: torch.Tensor, applied: torch.Tensor) -> None:
        """Update parameters in place by the optimizer's formula, unless the update is skipped."""
        spec, is_fp64 = self.plan.optimizer, self.plan.mode.is_fp64
        math = JoinedMath(
            ops,
            self.world.size if group.is_shard else 1,
            self.plan.mode.rounds_gradients,
            sizes=tuple(weight.numel() for weight in group.weights),
            dimensions=min(group.weights[0].dim(), 3),
            rows=tuple(weight.shape[0] for weight in group.weights),
        )
        if not is_fp64:  # in place, as fused kernels do
            torch._foreach_div_(group.gradients, torch.where(finite, group.divisor, 1))
        targets = [list(map(in_memory_order, tensors, group.weights)) for tensors in (group.weights, *group.slots)]
        gradient = flattened(list(map(in_memory_order, group.gradients, group.weights)))
        if is_fp64:  # rounded once, as in every framework
            gradient = gradient * math.rounded(1 / group.divisor)
        old = [flattened(tensors) for tensors in targets]
        step, slots = spec.direction(math, old[0], gradient, tuple(old[1:]), group.weight_decay, applied)
        for tensors, before, value in zip(targets, old, (old[0] - group.lr * step, *slots), strict=True):
            parts = torch.where(finite, value, before).split(math.sizes)
            torch._foreach_copy_(tensors, [part.view(tensor.shape) for part, tensor in zip(parts, tensors)])

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
