"""Canonical names of PyTorch tensors: PyTorch's own names, without the batch counters."""

import torch
from torch import nn


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter, then every running statistic, by canonical name; not copied."""
    tensors: dict[str, torch.Tensor] = dict(model.named_parameters())
    buffers = model.named_buffers()
    tensors.update((name, buffer) for name, buffer in buffers if not name.endswith("num_batches_tracked"))
    return tensors
