"""LAMB in PyTorch; the formula is in zoo/optim/lamb.py."""

from collections.abc import Sequence
from typing import Any

import torch

from zoo.trainer.torch.optimizers import elementwise
from zoo.trainer.torch.optimizers.adamw import direction
from zoo.trainer.torch.optimizers.elementwise import Step, Tensors, norm, ratio_or_one


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place."""
    elementwise.apply(_formula, spec, tensors, step)


def _formula(spec: Any, tensors: Tensors, gradient: torch.Tensor, step: Step) -> tuple[torch.Tensor, ...]:
    update, mean, square = direction(spec, tensors, gradient, step)
    if tensors.weight.dim() > 1:
        of_weight, of_update = norm(tensors.weight, tensors, step), norm(update, tensors, step)
        update = step.number(ratio_or_one(of_weight, of_update, of_weight / of_update)) * update
    return tensors.weight - tensors.lr * update, mean, square
