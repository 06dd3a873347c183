"""NVIDIA's GPUs: the driver, and which CUDA it runs."""

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

from zoo.doctor import child
from zoo.doctor.child import Tell
from zoo.doctor.report import ABSENT, OK, WARNING, Finding, gigabytes

SYS, DEV = Path("/sys"), Path("/dev")
NVIDIA = "0x10de"  # vendor on the PCI bus
DISPLAY = ("0x0300", "0x0302")  # classes of PCI devices, their first digits: VGA and 3D controllers
SECTION, TOPIC = "machine", "NVIDIA driver"
CONTAINER = "in a container: start it with --gpus all and the NVIDIA Container Toolkit"
INSTALL = f"install NVIDIA's driver (https://www.nvidia.com/drivers) and reboot; {CONTAINER}"
# CUDA's error codes at the start of the driver, which are documented for cuInit and cudaError.
CAUSES = {
    34: ("the library is a stub for linking", "put the real driver's library first in LD_LIBRARY_PATH"),
    100: ("it sees no GPU", f"look at CUDA_VISIBLE_DEVICES and the lines of NVRM in dmesg; {CONTAINER}"),
    802: ("the system is not ready", "start nvidia-fabricmanager of the driver's version (machines with NVSwitch)"),
    803: ("the library and the kernel module are of different versions", "reboot, or reload the kernel modules"),
    804: ("this GPU has no forward compatibility", "remove cuda-compat from LD_LIBRARY_PATH or renew the driver"),
    999: ("an unknown error", "load the kernel module nvidia_uvm (nvidia-modprobe -u), or reboot"),
}
# The first driver of each major version of CUDA for Linux, by the CUDA Toolkit's release notes.
FIRST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
DRIVER_LIBRARY = "libcuda.so.1"
COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
NAME_SIZE = 256  # bytes


class Driver(NamedTuple):
    """NVIDIA's driver of this machine.

    Attributes:
        expected: whether a GPU or its device file is here, so that a missing driver is missed.
        cuda: newest CUDA that it runs, such as (12, 8); None without a driver.
        devices: facts of its devices: name, memory, capability.
    """

    expected: bool = False
    cuda: tuple[int, int] | None = None
    devices: tuple[dict[str, Any], ...] = ()


def examine(seconds: float, version: str | None) -> tuple[Driver, list[Finding]]:
    """Return the driver and the lines about it.

    Args:
        seconds: time limit of the driver.
        version: of the kernel module.
    """
    expected, answer = has_gpu(), child.ask(seconds, "driver")
    facts = answer.facts
    if facts.get("library") is False and not expected:
        return Driver(), [Finding(SECTION, TOPIC, ABSENT, "no GPU on the PCI bus, and no driver")]
    if facts.get("library") is False:
        text = f"there is a GPU, but no driver: {DRIVER_LIBRARY} is missing"
        return Driver(True), [Finding(SECTION, TOPIC, WARNING, text, INSTALL)]
    cuda = (facts["cuda"][0], facts["cuda"][1]) if "cuda" in facts else None
    devices, init = tuple(facts.get("devices", ())), facts.get("init")
    name = f"driver {version or 'of an unknown version'}, for CUDA up to {cuda[0]}.{cuda[1]}" if cuda else "driver"
    finding = Finding(SECTION, TOPIC, OK, name)
    if answer.failure:
        finding = Finding(SECTION, TOPIC, WARNING, f"{name} {answer.failure}", "reboot, or reinstall it")
    elif init or not devices:
        code = init or 100
        cause, remedy = CAUSES.get(code, ("it cannot start", "look at the lines of NVRM in dmesg, or reboot"))
        finding = Finding(SECTION, TOPIC, WARNING, f"{name}: {cause} (CUDA error {code})", remedy)
    return Driver(expected or bool(devices), cuda, devices), [finding, *map(_describe, range(len(devices)), devices)]


def has_gpu() -> bool:
    """Return whether the PCI bus has an NVIDIA GPU, or the container a device file of one."""
    on_bus = (
        (folder / "vendor").read_text().strip() == NVIDIA and (folder / "class").read_text().startswith(DISPLAY)
        for folder in SYS.glob("bus/pci/devices/*")
    )
    return any(DEV.glob("nvidia[0-9]*")) or any(on_bus)


def mismatch(build: str, driver: Driver) -> tuple[str, str] | None:
    """Return why a build for a version of CUDA cannot run with the driver and what to do; None if it can.

    A driver runs programs of all older versions of CUDA, and those of newer minor versions of its own major version.
    """
    major = int(build.partition(".")[0])
    if driver.cuda is None or major <= driver.cuda[0]:
        return None
    first = FIRST_DRIVER.get(major)
    renew = f"install driver {first} or newer" if first else "install a newer driver"
    runs = f"{driver.cuda[0]}.{driver.cuda[1]}"
    return f"it is built for CUDA {build}, the driver runs CUDA up to {runs}", f"{renew}, or a build for CUDA {runs}"


def _describe(index: int, device: dict[str, Any]) -> Finding:
    major, minor = device["capability"]
    text = f"{device['name']}, {gigabytes(device['memory'])}, compute capability {major}.{minor}"
    return Finding(SECTION, f"GPU {index}", OK, text)


def probe_driver(tell: Tell) -> None:
    """Tell the driver's CUDA version, the result of its start and its devices.

    Facts: `library`, whether it is there; `cuda`, such as [12, 8]; `init`, CUDA's error code, 0 if all is well;
    `devices`, each with name, memory in bytes and compute capability.
    """
    tell(stage="loading " + DRIVER_LIBRARY)
    try:
        cuda = ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        tell(library=False)
        return
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
        tell(cuda=[version.value // 1000, version.value % 1000 // 10])
    tell(stage="starting the driver")
    code = cuda.cuInit(0)
    tell(init=code)
    if code == 0:
        tell(devices=_driver_devices(cuda))


def _driver_devices(cuda: ctypes.CDLL) -> list[dict[str, Any]]:
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
