"""Settings of Paddle that decide how it computes fp32 numbers on a GPU. Not run on a GPU so far."""

import os
from typing import Any

import paddle
from paddle.base import core

from zoo.trainer.plan import Arithmetic

CUDNN_TF32, CUBLAS_TF32 = "FLAGS_cudnn_allow_tf32", "FLAGS_cublas_allow_tf32"
BENCHMARK = "FLAGS_cudnn_exhaustive_search"
DETERMINISTIC = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic")
OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # NVIDIA's libraries read it, and it prevails: 0 forbids TF32


def apply(arithmetic: Arithmetic) -> None:
    """Set TF32, cuDNN's choice of kernels and determinism for the process.

    By default Paddle 2.6 uses TF32 in both libraries, 3.3 in cuDNN alone. Both have switches; a GPU build of 3.3 has
    flags, too.
    """
    if not paddle.is_compiled_with_cuda():
        return
    switches: Any = core
    switches.set_cublas_switch(arithmetic.tf32)
    switches.set_cudnn_switch(arithmetic.tf32)
    flags = {
        **dict.fromkeys((CUDNN_TF32, CUBLAS_TF32), arithmetic.tf32),
        BENCHMARK: arithmetic.cudnn_benchmark,
        **dict.fromkeys(DETERMINISTIC, arithmetic.deterministic),
    }
    paddle.set_flags({name: value for name, value in flags.items() if core.globals().is_public(name)})


def settings() -> dict[str, Any]:
    """Return the settings in force by their names in Paddle; none in a build without CUDA."""
    if not paddle.is_compiled_with_cuda():
        return {}
    switches: Any = core
    return {
        "cublas_switch": switches.get_cublas_switch(),
        "cudnn_switch": switches.get_cudnn_switch(),
        **paddle.get_flags(
            [name for name in (CUDNN_TF32, CUBLAS_TF32, BENCHMARK, *DETERMINISTIC) if core.globals().is_public(name)]
        ),
        OVERRIDE: os.environ.get(OVERRIDE),
    }
