"""Numbers of a loss on the device."""

from functools import cache

import torch


@cache
def constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return values as a tensor; copied to the device once, because a copy waits for it."""
    return torch.tensor(values, dtype=dtype, device=device)
