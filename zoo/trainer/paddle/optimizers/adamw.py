"""AdamW in Paddle; the formula is in zoo/optim/adamw.py."""

from collections.abc import Sequence
from typing import Any

import paddle

from zoo.trainer.paddle.optimizers import elementwise
from zoo.trainer.paddle.optimizers.elementwise import Step, Tensors, number


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place."""
    elementwise.apply(_formula, spec, tensors, step)


def direction(spec: Any, tensors: Tensors, gradient: paddle.Tensor, step: Step) -> tuple[paddle.Tensor, ...]:
    """Return the update without the learning rate, and the new slots."""
    mean = number(spec.beta1, gradient) * tensors.slots[0] + number(1 - spec.beta1, gradient) * gradient
    new_square = number(1 - spec.beta2, gradient) * (gradient * gradient)
    square = number(spec.beta2, gradient) * tensors.slots[1] + new_square
    corrected_mean = mean / step.bias_correction(spec.beta1).astype(mean.dtype)
    corrected_square = square / step.bias_correction(spec.beta2).astype(mean.dtype)
    adaptive = corrected_mean / (corrected_square.sqrt() + number(spec.eps, mean))
    return adaptive + number(tensors.weight_decay, gradient) * tensors.weight, mean, square


def _formula(spec: Any, tensors: Tensors, gradient: paddle.Tensor, step: Step) -> tuple[paddle.Tensor, ...]:
    update, mean, square = direction(spec, tensors, gradient, step)
    return tensors.weight - number(tensors.lr, gradient) * update, mean, square
