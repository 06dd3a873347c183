"""Activation checkpointing (arXiv:1604.06174): the backward pass computes a module's activations again.

The second computation is the same as the first, but leaves running statistics alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def checkpoint_modules(model: nn.Module, names: Sequence[str]) -> None:
    """Let the named modules of a model keep their inputs alone for the backward pass."""
    for name in names:
        _checkpoint_module(model.get_submodule(name))


def _checkpoint_module(module: nn.Module) -> None:
    forward = module.forward
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]

    def checkpointed_forward(*inputs: torch.Tensor) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs)
        # Dropout masks are inputs of the model, so there is no state of a random generator to restore. A compiled model
        # updates statistics outside of what it computes again, and has no use for contexts.
        contexts: dict[str, Any] = (
            {} if torch.compiler.is_compiling() else {"context_fn": lambda: (nullcontext(), unmoved(norms))}
        )
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **contexts)

    module.forward = checkpointed_forward


@contextmanager
def unmoved(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Normalize as before, without moving the running statistics.

    By a momentum of 0: without statistics, the operator would save other tensors than before, which is an error.
    """
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
