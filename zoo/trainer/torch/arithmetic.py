"""Settings of PyTorch that decide how it computes fp32 numbers on a GPU."""

from typing import Any

import torch

from zoo.trainer.protocol import Arithmetic


def apply(arithmetic: Arithmetic) -> None:
    """Set TF32 and cuDNN's choice of kernels for the process."""
    torch.backends.cuda.matmul.allow_tf32 = arithmetic.tf32
    torch.backends.cudnn.allow_tf32 = arithmetic.tf32
    torch.backends.cudnn.benchmark = arithmetic.cudnn_benchmark


def settings() -> dict[str, Any]:
    """Return the settings in force by their names in PyTorch."""
    return {
        "torch.backends.cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "torch.backends.cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
    }
