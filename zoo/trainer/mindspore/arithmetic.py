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
    """Set determinism for the process, and on a GPU TF32 and cuDNN's choice of kernels; nothing on a CPU.

    A process that has become deterministic stays so: MindSpore allows one change.
    """
    if arithmetic.deterministic and _device() != "CPU" and _parameter("deterministic") != "ON":
        mindspore.set_deterministic(True)
    if _device() == "GPU":
        kernels = "performance" if arithmetic.cudnn_benchmark else "normal"
        mindspore.set_context(gpu_config={**dict.fromkeys(TF32, arithmetic.tf32), **dict.fromkeys(KERNELS, kernels)})


def settings() -> dict[str, Any]:
    """Return the settings in force by their names in MindSpore; none on a CPU."""
    of_gpus = (*TF32, *KERNELS) if _device() == "GPU" else ()
    return {} if _device() == "CPU" else {name: _parameter(name) for name in (*of_gpus, "deterministic")}


def _device() -> str:
    return mindspore.get_context("device_target")


def _parameter(name: str) -> Any:
    return MSContext.get_instance().get_param(getattr(ms_ctx_param, name))
