"""AdamW in PyTorch; the formula is in zoo/optim/adamw.py."""

from collections.abc import Sequence
from typing import Any

import torch

from zoo.trainer.torch.optimizers import elementwise
from zoo.trainer.torch.optimizers.elementwise import Step, Tensors, sqrt


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place."""
    elementwise.apply(_formula, spec, tensors, step)


def direction(spec: Any, tensors: Tensors, gradient: torch.Tensor, step: Step) -> tuple[torch.Tensor, ...]:
    """Return the update without the learning rate, and the new slots."""
    mean = spec.beta1 * tensors.slots[0] + (1 - spec.beta1) * gradient
    square = spec.beta2 * tensors.slots[1] + (1 - spec.beta2) * (gradient * gradient)
    corrected_mean = mean / step.bias_correction(spec.beta1).to(mean.dtype)
    corrected_square = square / step.bias_correction(spec.beta2).to(mean.dtype)
    adaptive = corrected_mean / (sqrt(corrected_square) + spec.eps)
    return adaptive + tensors.weight_decay * tensors.weight, mean, square


def _formula(spec: Any, tensors: Tensors, gradient: torch.Tensor, step: Step) -> tuple[torch.Tensor, ...]:
    update, mean, square = direction(spec, tensors, gradient, step)
    return tensors.weight - tensors.lr * update, mean, square
