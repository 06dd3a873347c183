"""Slots of all trained parameters, and their update by the optimizer of the plan."""

import importlib
from collections.abc import Mapping
from typing import NamedTuple

import torch

from zoo.trainer.plan import Plan
from zoo.trainer.state import slot_key
from zoo.trainer.torch.optimizers.elementwise import Step, Tensors
from zoo.trainer.torch.shard import ParameterShard


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
    """

    def __init__(self, plan: Plan, parameters: Mapping[str, torch.Tensor], shards: Mapping[str, ParameterShard]):
        self.plan, self.parameters, self.shards = plan, parameters, shards
        self.update = importlib.import_module(f"zoo.trainer.torch.optimizers.{plan.optimizer.name}").update
        weights = {**parameters, **{name: shard.values.detach() for name, shard in shards.items()}}
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

    @torch.no_grad()
    def step(self, lr: float, divisors: Divisors, finite: torch.Tensor) -> None:
        """Update every parameter that has a gradient; of a shard whose rows are sampled only these.

        Args:
            lr: learning rate.
            divisors: of the gradients; in fp32, gradients are divided in place unless the update is skipped.
            finite: 0-d bool; where it is False, nothing changes.
        """
        tensors = [
            self._tensors(name, parameter.detach(), parameter.grad, self.slots[name], lr, divisors.model)
            for name, parameter in self.parameters.items()
            if parameter.grad is not None
        ]
        rows = {}
        for name, shard in self.shards.items():
            slots = self.slots[name]
            if shard.index is not None:
                slots = tuple(slot[shard.index] for slot in slots)
            weight, gradient = shard.active_rows.detach(), shard.active_rows.grad
            assert gradient is not None
            rows[name] = self._tensors(name, weight, gradient, slots, lr, divisors.shards, is_shard=True)
        mode = self.plan.mode
        self.update(self.plan.optimizer, [*tensors, *rows.values()], Step(finite, mode.is_fp64, mode.rounds_gradients))
        for name, shard in self.shards.items():
            if shard.index is not None:
                shard.values.detach()[shard.index] = rows[name].weight
                for slot, row in zip(self.slots[name], rows[name].slots):
                    slot[shard.index] = row

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
