"""Settings of PyTorch that decide how it computes on a GPU.

TF32 is set by the older names, from which PyTorch derives the newer `fp32_precision` (seen in 2.13). Set the other way
round, reading the older ones raises an error, and torch.compile reads them.
"""

import os
from typing import Any

import torch

from zoo.trainer.plan import Arithmetic

CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACE = ":4096:8"  # eight buffers of 4 MiB: with one of the two sizes that NVIDIA names, cuBLAS repeats its results


def apply(arithmetic: Arithmetic) -> None:
    """Set TF32, choice of kernels, determinism and the sums of 16-bit matrix products, for the process.

    In a deterministic process, PyTorch raises a RuntimeError where it has no deterministic kernel for an operation.
    """
    if arithmetic.deterministic:
        os.environ.setdefault(CUBLAS_WORKSPACE, WORKSPACE)  # read when cuBLAS is used first
    if arithmetic.deterministic or torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(arithmetic.deterministic)  # imports the compiler, which takes 0.7 s
    # It takes a tenth of the time, and nothing here reads such memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = arithmetic.deterministic
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
        "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled(),
        CUBLAS_WORKSPACE: os.environ.get(CUBLAS_WORKSPACE),
    }
