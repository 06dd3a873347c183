"""SGD with momentum in PyTorch; the formula is in zoo/optim/sgd.py."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.sgd import sgd

from zoo.trainer.torch.optimizers import elementwise
from zoo.trainer.torch.optimizers.elementwise import Step, Tensors


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place: in fp32 by PyTorch's fused kernel, which divides the gradients and skips on the device."""
    if step.is_fp64:
        elementwise.apply(_formula, spec, tensors, step)
    else:
        fused(tensors, step, spec.momentum)


def fused(tensors: Sequence[Tensors], step: Step, momentum: float, nesterov: bool = False) -> None:
    """Update in place by the fused kernel of SGD, once for all tensors with the same numbers."""
    found_inf = (~step.finite).float()
    for members in elementwise.with_same_numbers(tensors):
        sgd(
            [each.weight for each in members],
            [each.gradient for each in members],
            [each.slots[0] for each in members],
            fused=True,
            grad_scale=members[0].divisor,
            found_inf=found_inf,
            lr=members[0].lr,
            weight_decay=members[0].weight_decay,
            momentum=momentum,
            dampening=0.0,
            nesterov=nesterov,
            maximize=False,
        )


def _formula(spec: Any, tensors: Tensors, gradient: torch.Tensor, step: Step) -> tuple[torch.Tensor, ...]:
    direction = gradient + tensors.weight_decay * tensors.weight
    momentum = spec.momentum * tensors.slots[0] + direction
    return tensors.weight - tensors.lr * momentum, momentum
