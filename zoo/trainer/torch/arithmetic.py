"""Settings of PyTorch that decide how it computes on a GPU.

TF32 is set by the older names, from which PyTorch derives the newer `fp32_precision` (seen in 2.13). Set the other way
round, reading the older ones raises an error, and torch.compile reads them.
"""

from typing import Any

import torch

from zoo.trainer.plan import Arithmetic


def apply(arithmetic: Arithmetic) -> None:
    """Set TF32, cuDNN's choice of kernels and the sums of 16-bit matrix products, for the process."""
    torch.backends.cuda.matmul.allow_tf32 = arithmetic.tf32
    torch.backends.cudnn.allow_tf32 = arithmetic.tf32
    torch.backends.cudnn.benchmark = arithmetic.cudnn_benchmark
    # By default cuBLAS may add up in 16 bits the parts of a sum that it has split.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def settings() -> dict[str, Any]:
    """Return the settings in force by their names in PyTorch."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return {
        "torch.backends.cuda.matmul.allow_tf32": matmul.allow_tf32,
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": (
            matmul.allow_fp16_reduced_precision_reduction
        ),
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": (
            matmul.allow_bf16_reduced_precision_reduction
        ),
        "torch.backends.cudnn.allow_tf32": cudnn.allow_tf32,
        "torch.backends.cudnn.benchmark": cudnn.benchmark,
        "torch.backends.cudnn.deterministic": cudnn.deterministic,
    }
