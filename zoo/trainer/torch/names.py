"""Canonical names to PyTorch tensors. They are the module names themselves, without PyTorch's batch counters."""

import torch
from torch import nn


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter, then every running statistic, by canonical name; the tensors themselves, not copies."""
    named = dict(model.named_parameters())
    named.update((name, buffer) for name, buffer in model.named_buffers() if not name.endswith("num_batches_tracked"))
    return named
