"""The device on which ONNX Runtime computes."""

import ctypes
import os
from dataclasses import dataclass
from typing import Any

import onnxruntime

from zoo.data import host
from zoo.data.parsing import natural
from zoo.trainer.device import Device, select_device
from zoo.trainer.plan import Arithmetic, Mode
from zoo.trainer.profiling import Profiler
from zoo.trainer.world import Launch

PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}  # by the name of the device
CPU_PROVIDER = "CPUExecutionProvider"
FP32 = Mode("fp32", None, False, False)


@dataclass(frozen=True)
class World:
    """This process among those of an evaluation, which exchange nothing through ONNX Runtime."""

    rank: int
    size: int
    selected: Device
    threads: int

    @property
    def device(self) -> str:
        return f"cpu ({self.threads} threads)" if self.selected.type == "cpu" else str(self.selected)

    @property
    def cuda_index(self) -> int | None:
        """None: samples come from the host, also where a GPU computes."""
        return None

    @property
    def version(self) -> str:
        return onnxruntime.__version__

    @property
    def providers(self) -> list[Any]:
        """What computes, the first choice first, as ONNX Runtime takes it."""
        if self.selected.type == "cpu":
            return [CPU_PROVIDER]
        return [(PROVIDERS[self.selected.type], {"device_id": str(self.selected.index)}), CPU_PROVIDER]

    def libraries(self) -> dict[str, str | None]:
        """See World in zoo/trainer/world.py; ONNX Runtime tells none of them."""
        return dict.fromkeys(("cuda", "cudnn", "nccl", "cann"))

    def accelerator(self) -> dict[str, Any] | None:
        """See World in zoo/trainer/world.py."""
        if self.selected.type == "cpu":
            return None
        return {"name": str(self.selected), "memory_bytes": None, "peak_flops": None}

    def peak_memory(self) -> int | None:
        """See World in zoo/trainer/world.py."""
        return None

    def record_event(self) -> Any:
        """See World in zoo/trainer/world.py: the host waits for every prediction."""
        return None

    def profiler(self) -> Profiler:
        """See World in zoo/trainer/world.py."""
        raise NotImplementedError("updates are profiled, and an exported model has none")

    def resolve_mode(self, requested: Mode) -> Mode:
        """See World in zoo/trainer/world.py: the graph itself says how it computes."""
        return FP32

    def set_arithmetic(self, arithmetic: Arithmetic) -> None:
        """See World in zoo/trainer/world.py: there is none to choose."""

    def arithmetic(self) -> dict[str, Any]:
        """See World in zoo/trainer/world.py."""
        return {}

    def close(self) -> None:
        """See World in zoo/trainer/world.py."""

    def exit_process(self, code: int) -> None:
        """See World in zoo/trainer/world.py."""


def start(launch: Launch, device: str, port: int = 0) -> World:
    """Select the device of this process.

    Args:
        launch: this process among those of the evaluation.
        device: auto, cpu, cuda, tensorrt, or one of these with a number, such as cuda:1.
        port: not needed.

    Raises:
        UserError: the device is not present, or this build of ONNX Runtime does not use it.
    """
    selected = select_device(device, launch, tuple(PROVIDERS), _device_count, "ONNX Runtime")
    return World(launch.rank, launch.size, selected, _thread_count())


def _thread_count() -> int:
    """Return OMP_NUM_THREADS, or the number of cores that this process has for itself."""
    given = natural(os.environ.get("OMP_NUM_THREADS", ""))
    return given or max(1, int(host.core_share([host.cores()], 0, host.cpu_quota())))


def _device_count(kind: str) -> int:
    """Return the number of GPUs that the driver shows, 0 if this build of ONNX Runtime does not use them."""
    if PROVIDERS[kind] not in onnxruntime.get_available_providers():
        return 0
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0
