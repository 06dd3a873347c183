"""Settings of MindSpore that decide how it computes fp32 numbers on a GPU."""

from typing import Any

import mindspore

from zoo.trainer.protocol import Arithmetic


def apply(arithmetic: Arithmetic) -> None:
    """Set TF32 and cuDNN's choice of kernels for the process."""
    if mindspore.get_context("device_target") == "GPU":
        mindspore.device_context.gpu.op_precision.conv_allow_tf32(arithmetic.tf32)
        mindspore.device_context.gpu.op_precision.matmul_allow_tf32(arithmetic.tf32)


def settings() -> dict[str, Any]:
    """Return the settings in force by their names in MindSpore; none where it does not compute on a GPU."""
    return {}
