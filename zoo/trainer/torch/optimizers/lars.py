"""LARS in PyTorch; the formula is in zoo/optim/lars.py."""

from collections.abc import Sequence
from typing import Any

import torch

from zoo.trainer.torch.optimizers import elementwise
from zoo.trainer.torch.optimizers.elementwise import Step, Tensors, norm, ratio_or_one


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place."""
    elementwise.apply(_formula, spec, tensors, step)


def _formula(spec: Any, tensors: Tensors, gradient: torch.Tensor, step: Step) -> tuple[torch.Tensor, ...]:
    direction = gradient + tensors.weight_decay * tensors.weight
    if tensors.weight.dim() > 1:
        weight, slope = norm(tensors.weight, tensors, step), norm(gradient, tensors, step)
        trust = spec.trust_coefficient * weight / (slope + tensors.weight_decay * weight + spec.eps)
        direction = step.number(ratio_or_one(weight, slope, trust)) * direction
    momentum = spec.momentum * tensors.slots[0] + direction
    return tensors.weight - tensors.lr * momentum, momentum
