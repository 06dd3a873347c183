"""SGD with Nesterov's momentum in Paddle; the formula is in zoo/optim/sgd_nesterov.py."""

from collections.abc import Sequence
from typing import Any

import paddle

from zoo.trainer.paddle.optimizers import elementwise, sgd
from zoo.trainer.paddle.optimizers.elementwise import Step, Tensors, number


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place, if finite: in fp32 on a CPU by Paddle's fused kernel."""
    if not sgd.has_host_decision(tensors[0].weight):
        elementwise.apply(_formula, spec, tensors, step)
    elif step.finite:
        sgd.merged(tensors, spec.momentum, nesterov=True)


def _formula(spec: Any, tensors: Tensors, gradient: paddle.Tensor, step: Step) -> tuple[paddle.Tensor, ...]:
    direction = gradient + number(tensors.weight_decay, gradient) * tensors.weight
    factor = number(spec.momentum, gradient)
    momentum = factor * tensors.slots[0] + direction
    return tensors.weight - number(tensors.lr, gradient) * (direction + factor * momentum), momentum
