"""LAMB in Paddle; the formula is in zoo/optim/lamb.py."""

from collections.abc import Sequence
from typing import Any

import paddle

from zoo.trainer.paddle.optimizers import elementwise
from zoo.trainer.paddle.optimizers.adamw import direction
from zoo.trainer.paddle.optimizers.elementwise import Step, Tensors, norm, number, ratio_or_one


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place."""
    elementwise.apply(_formula, spec, tensors, step)


def _formula(spec: Any, tensors: Tensors, gradient: paddle.Tensor, step: Step) -> tuple[paddle.Tensor, ...]:
    update, mean, square = direction(spec, tensors, gradient, step)
    if tensors.weight.ndim > 1:
        of_weight, of_update = norm(tensors.weight, tensors.is_shard), norm(update, tensors.is_shard)
        update = step.number(ratio_or_one(of_weight, of_update, of_weight / of_update)) * update
    return tensors.weight - number(tensors.lr, gradient) * update, mean, square
