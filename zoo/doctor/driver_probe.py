"""NVIDIA's driver, asked through its own library by ctypes; run in a child process."""

import ctypes
from typing import Any

from zoo.doctor.worker import Tell

LIBRARY = "libcuda.so.1"
COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
NAME_SIZE = 256  # bytes


def probe(tell: Tell) -> None:
    """Tell the driver's CUDA version, the result of its start and its devices.

    Facts: `library`, whether it is there, or `library_error`; `cuda`, such as [12, 8]; `init`, CUDA's error code, 0 if
    all is well; `devices`, each with name, memory in bytes and compute capability; `driver`, its version.
    """
    tell(stage="loading " + LIBRARY)
    try:
        cuda = ctypes.CDLL(LIBRARY)
    except OSError as error:
        tell(library=False, library_error=str(error))
        return
    tell(library=True)
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        tell(cuda=[version.value // 1000, version.value % 1000 // 10])
    tell(stage="starting the driver")
    code = cuda.cuInit(0)
    tell(init=code)
    if code == 0:
        tell(devices=_devices(cuda))
    tell(stage="asking NVML", driver=_version())


def _devices(cuda: ctypes.CDLL) -> list[dict[str, Any]]:
    count, devices = ctypes.c_int(), []
    cuda.cuDeviceGetCount(ctypes.byref(count))
    for index in range(count.value):
        device, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(NAME_SIZE)
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceGetName(name, NAME_SIZE, device)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        capability = [ctypes.c_int(), ctypes.c_int()]
        for value, attribute in zip(capability, COMPUTE_CAPABILITY):
            cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        text = name.value.decode("utf-8", "replace")
        devices.append({"name": text, "memory": memory.value, "capability": [value.value for value in capability]})
    return devices


def _version() -> str | None:
    """Return the driver's version by NVML, such as 580.65.06; None without nvidia-ml-py."""
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else version
    except Exception:  # not installed, or no NVML beside libcuda
        return None
