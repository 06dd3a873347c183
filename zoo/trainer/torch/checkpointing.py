"""Activation checkpointing (arXiv:1604.06174): the backward pass computes a module's activations again.

The second computation must be the same as the first, but leave running statistics alone: the trainer runs the backward
pass within `unmoved`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_modules(model: nn.Module, names: Sequence[str]) -> list[_BatchNorm]:
    """Let the named modules of a model keep their inputs alone for the backward pass; return their normalizations."""
    modules = [model.get_submodule(name) for name in names]
    for module in modules:
        _checkpoint_module(module)
    return [part for module in modules for part in module.modules() if isinstance(part, _BatchNorm)]


def _checkpoint_module(module: nn.Module) -> None:
    forward = module.forward

    def checkpointed_forward(*inputs: torch.Tensor) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs)
        # Dropout masks are inputs of the model, so there is no state of a random generator to restore.
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False)

    module.forward = checkpointed_forward


@contextmanager
def unmoved(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Normalize as usual, without moving the running statistics.

    By a momentum of 0: without statistics, the operator would save other tensors than before, which is an error. Not by
    contexts of `checkpoint`, which a compiled model ignores where it is cut into several graphs.
    """
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
