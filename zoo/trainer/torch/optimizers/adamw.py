"""AdamW in PyTorch; the formula is in zoo/optim/adamw.py."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.adamw import adamw

from zoo.trainer.torch.optimizers import elementwise
from zoo.trainer.torch.optimizers.elementwise import Step, Tensors, sqrt


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place: in fp32 by PyTorch's fused kernel, which divides the gradients and skips on the device."""
    if step.is_fp64:
        elementwise.apply(_formula, spec, tensors, step)
    else:
        _fused(spec, tensors, step)


def direction(spec: Any, tensors: Tensors, gradient: torch.Tensor, step: Step) -> tuple[torch.Tensor, ...]:
    """Return the update without the learning rate, and the new slots."""
    mean = spec.beta1 * tensors.slots[0] + (1 - spec.beta1) * gradient
    square = spec.beta2 * tensors.slots[1] + (1 - spec.beta2) * (gradient * gradient)
    corrected_mean = mean / step.bias_correction(spec.beta1).to(mean.dtype)
    corrected_square = square / step.bias_correction(spec.beta2).to(mean.dtype)
    adaptive = corrected_mean / (sqrt(corrected_square) + spec.eps)
    return adaptive + tensors.weight_decay * tensors.weight, mean, square


def _fused(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place by the fused kernel of AdamW, which takes a twentieth of the formula's time on a CPU."""
    found_inf = (~step.finite).float()
    for members in elementwise.with_same_numbers(tensors):
        adamw(
            [each.weight for each in members],
            [each.gradient for each in members],
            [each.slots[0] for each in members],
            [each.slots[1] for each in members],
            [],  # the largest squares, of AMSGrad
            list((step.applied - 1).expand(len(members)).clone().unbind()),  # one each, which PyTorch counts up
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


def _formula(spec: Any, tensors: Tensors, gradient: torch.Tensor, step: Step) -> tuple[torch.Tensor, ...]:
    update, mean, square = direction(spec, tensors, gradient, step)
    return tensors.weight - tensors.lr * update, mean, square
