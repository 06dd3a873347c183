"""Settings of MindSpore that decide how it computes on a GPU.

By `set_context`, although MindSpore recommends mindspore.device_context.gpu: the classes behind that are not part of
mindspore 2.8.0 where its GPU back end is not loaded, and they do not tell what is set.
"""

from typing import Any

import mindspore
from mindspore._c_expression import MSContext, ms_ctx_param

from zoo.trainer.plan import Arithmetic

TF32 = ("conv_allow_tf32", "matmul_allow_tf32")
KERNELS = ("conv_fprop_algo", "conv_dgrad_algo", "conv_wgrad_algo")


def apply(arithmetic: Arithmetic) -> None:
    """Set TF32 and cuDNN's choice of kernels for the process; does nothing where it does not compute on a GPU."""
    if _is_on_gpu():
        kernels = "performance" if arithmetic.cudnn_benchmark else "normal"
        mindspore.set_context(gpu_config={**dict.fromkeys(TF32, arithmetic.tf32), **dict.fromkeys(KERNELS, kernels)})


def settings() -> dict[str, Any]:
    """Return the settings in force by their names in MindSpore; none where it does not compute on a GPU."""
    if not _is_on_gpu():
        return {}
    context = MSContext.get_instance()
    return {name: context.get_param(getattr(ms_ctx_param, name)) for name in (*TF32, *KERNELS, "deterministic")}


def _is_on_gpu() -> bool:
    return mindspore.get_context("device_target") == "GPU"
