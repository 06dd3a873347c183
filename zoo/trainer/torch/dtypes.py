"""Types of PyTorch by the precision of a mode."""

import torch

from zoo.trainer.plan import Mode

MIXED_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def mixed_dtype(mode: Mode) -> torch.dtype | None:
    """Return the 16-bit type of a mode; None if it has none."""
    return MIXED_DTYPES.get(mode.compute)


def wide_dtype(mode: Mode) -> torch.dtype:
    """Return the type of parameters, momentum and losses."""
    return torch.float64 if mode.is_fp64 else torch.float32
