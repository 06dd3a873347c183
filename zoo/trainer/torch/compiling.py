"""torch.compile of a model, by itself or in one of the modes that record CUDA graphs.

A graph writes its results to the same memory in every update, the gradients of the parameters included. Autograd would
take that memory for `grad`, and the next micro-batch would overwrite the sum (pytorch/pytorch, issue 169545). So the
trainer allocates gradients itself and fills them with zeros, to which autograd adds.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

GRAPH_MODES = ("reduce-overhead", "max-autotune")  # modes of torch.compile that record CUDA graphs on a GPU


def compile_model(model: nn.Module, setting: bool | str | None) -> tuple[Any, Any]:
    """Return the forward pass of training and that of evaluation.

    That of evaluation never is a CUDA graph, because predictions are kept while others are made, in several sizes.

    Args:
        model: the model.
        setting: `train.compile`: whether to compile, or a mode of torch.compile.
    """
    if not setting:
        return model, model
    compiled = torch.compile(model)
    return torch.compile(model, mode=setting) if setting in GRAPH_MODES else compiled, compiled


def allocate_gradients(tensors: Iterable[torch.Tensor]) -> None:
    """Give tensors gradients of zeros, in memory that no graph writes to."""
    for tensor in tensors:
        tensor.grad = torch.zeros_like(tensor)
