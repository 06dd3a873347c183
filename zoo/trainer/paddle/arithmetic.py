"""Settings of Paddle that decide how it computes fp32 numbers on a GPU."""

from typing import Any

import paddle

from zoo.trainer.protocol import Arithmetic

FLAGS = ("FLAGS_cudnn_exhaustive_search", "FLAGS_cudnn_deterministic")


def apply(arithmetic: Arithmetic) -> None:
    """Set TF32 and cuDNN's choice of kernels for the process.

    Paddle reads NVIDIA_TF32_OVERRIDE itself; it has no setting of its own.
    """
    if paddle.is_compiled_with_cuda():
        paddle.set_flags({"FLAGS_cudnn_exhaustive_search": arithmetic.cudnn_benchmark})


def settings() -> dict[str, Any]:
    """Return the settings in force by their names in Paddle; none in a build without CUDA."""
    return dict(paddle.get_flags(list(FLAGS))) if paddle.is_compiled_with_cuda() else {}
