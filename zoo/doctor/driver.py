"""NVIDIA's GPUs and driver: whether they are there and start, and which CUDA the driver runs."""

from pathlib import Path
from typing import Any, NamedTuple

from zoo.doctor import child
from zoo.doctor.finding import ABSENT, OK, WARNING, Finding, gigabytes

SYS, DEV = Path("/sys"), Path("/dev")
NVIDIA = "0x10de"  # vendor on the PCI bus
DISPLAY = ("0x0300", "0x0302")  # classes of PCI devices, their first digits: VGA and 3D controllers
SECTION = "machine"
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
        version: of the kernel module, as the kernel tells it.
    """
    expected, answer = has_gpu(), child.ask(seconds, "driver")
    facts = answer.facts
    if facts.get("library") is False:
        return _without_library(expected)
    found = facts.get("cuda")
    cuda = (found[0], found[1]) if found else None
    devices = tuple(facts.get("devices") or ())
    version = facts.get("driver") or version
    name = f"driver {version or 'of an unknown version'}, for CUDA up to {cuda[0]}.{cuda[1]}" if cuda else "driver"
    init = facts.get("init")
    if answer.failure and init != 0:
        finding = Finding(SECTION, "NVIDIA driver", WARNING, f"{name} {answer.failure}", "reboot, or reinstall it")
    elif init:
        cause, remedy = CAUSES.get(init, ("it cannot start", "look at the lines of NVRM in dmesg, or reboot"))
        finding = Finding(SECTION, "NVIDIA driver", WARNING, f"{name}: {cause} (CUDA error {init})", remedy)
    elif not devices:
        finding = Finding(SECTION, "NVIDIA driver", WARNING, f"{name}: {CAUSES[100][0]}", CAUSES[100][1])
    else:
        finding = Finding(SECTION, "NVIDIA driver", OK, name)
    return Driver(expected or bool(devices), cuda, devices), [finding, *_list(devices)]


def has_gpu() -> bool:
    """Return whether the PCI bus has an NVIDIA GPU, or the container a device file of one."""
    if any(DEV.glob("nvidia[0-9]*")):
        return True
    for folder in SYS.glob("bus/pci/devices/*"):
        if _read(folder / "vendor") == NVIDIA and _read(folder / "class").startswith(DISPLAY):
            return True
    return False


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


def _without_library(expected: bool) -> tuple[Driver, list[Finding]]:
    if expected:
        text = "there is a GPU, but no driver: libcuda.so.1 is missing"
        return Driver(True), [Finding(SECTION, "NVIDIA driver", WARNING, text, INSTALL)]
    return Driver(), [Finding(SECTION, "NVIDIA driver", ABSENT, "no GPU on the PCI bus, and no driver")]


def _list(devices: tuple[dict[str, Any], ...]) -> list[Finding]:
    findings = []
    for index, device in enumerate(devices):
        major, minor = device["capability"]
        text = f"{device['name']}, {gigabytes(device['memory'])}, compute capability {major}.{minor}"
        findings.append(Finding(SECTION, f"GPU {index}", OK, text))
    return findings


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
