"""SGD with Nesterov's momentum in PyTorch; the formula is in zoo/optim/sgd_nesterov.py."""

from collections.abc import Sequence
from typing import Any

import torch

from zoo.trainer.torch.optimizers import elementwise, sgd
from zoo.trainer.torch.optimizers.elementwise import Step, Tensors


def update(spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update in place: in fp32 by PyTorch's fused kernel."""
    if step.is_fp64:
        elementwise.apply(_formula, spec, tensors, step)
    else:
        sgd.fused(tensors, step, spec.momentum, nesterov=True)


def _formula(spec: Any, tensors: Tensors, gradient: torch.Tensor, step: Step) -> tuple[torch.Tensor, ...]:
    direction = gradient + tensors.weight_decay * tensors.weight
    momentum = spec.momentum * tensors.slots[0] + direction
    return tensors.weight - tensors.lr * (direction + spec.momentum * momentum), momentum
