"""LARS in Paddle; the formula is in zoo/optim/lars.py."""

from collections.abc import Sequence
from typing import Any

import paddle

from zoo.trainer.paddle.optimizers import elementwise
from zoo.trainer.paddle.optimizers.elementwise import Step, Tensors, norm, number, ratio_or_one


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place."""
    elementwise.apply(_formula, spec, tensors, step)


def _formula(spec: Any, tensors: Tensors, gradient: paddle.Tensor, step: Step) -> tuple[paddle.Tensor, ...]:
    direction = gradient + number(tensors.weight_decay, gradient) * tensors.weight
    if tensors.weight.ndim > 1:
        weight, slope = norm(tensors.weight, tensors.is_shard), norm(gradient, tensors.is_shard)
        trust = (
            number(spec.trust_coefficient, gradient)
            * weight
            / (slope + number(tensors.weight_decay, gradient) * weight + number(spec.eps, gradient))
        )
        direction = step.number(ratio_or_one(weight, slope, trust)) * direction
    momentum = number(spec.momentum, gradient) * tensors.slots[0] + direction
    return tensors.weight - number(tensors.lr, gradient) * momentum, momentum
