"""Canonical names of PyTorch tensors: PyTorch's own names, without the batch counters."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter, then every running statistic, by canonical name; not copied."""
    tensors: dict[str, torch.Tensor] = dict(model.named_parameters())
    buffers = model.named_buffers()
    tensors.update((name, buffer) for name, buffer in buffers if not name.endswith("num_batches_tracked"))
    return tensors


@torch.no_grad()
def load_arrays(model: nn.Module, tensors: Mapping[str, np.ndarray]) -> None:
    """Copy arrays into a model's tensors.

    Args:
        model: receives them.
        tensors: every parameter and running statistic by canonical name, in canonical layout.
    """
    for name, tensor in named_tensors(model).items():
        tensor.copy_(torch.from_numpy(np.array(tensors[name])))
