"""NVIDIA's GPUs: the driver, which CUDA it runs, and the libraries that a framework's GPU build needs."""

import ctypes
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.cuda_libraries import LIBRARIES as CUDA_11
from zoo.doctor import child
from zoo.doctor.child import Tell
from zoo.doctor.report import ABSENT, OK, WARNING, Finding, gigabytes

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
DRIVER_LIBRARY = "libcuda.so.1"
COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
NAME_SIZE = 256  # bytes
# Major version of CUDA -> names of the files that its builds ask for, a library after those that it needs itself.
LIBRARIES = {
    11: tuple(name for name in CUDA_11 if not name.startswith("libcudnn")),
    12: (
        "libcudart.so.12",
        "libnvrtc.so.12",
        "libnvJitLink.so.12",
        "libcublasLt.so.12",
        "libcublas.so.12",
        "libcufft.so.11",
        "libcurand.so.10",
        "libcusparse.so.12",
        "libcusolver.so.11",
    ),
    13: (
        "libcudart.so.13",
        "libnvrtc.so.13",
        "libnvJitLink.so.13",
        "libcublasLt.so.13",
        "libcublas.so.13",
        "libcufft.so.12",
        "libcurand.so.10",
        "libcusparse.so.12",
        "libcusolver.so.12",
    ),
}
CUDNN = {11: "libcudnn.so.8", 12: "libcudnn.so.9", 13: "libcudnn.so.9"}
NCCL = "libnccl.so.2"
OWN_NCCL = ("mindspore",)  # frameworks that bring NCCL in a folder of their own


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


def probe_driver(tell: Tell) -> None:
    """Tell the driver's CUDA version, the result of its start and its devices.

    Facts: `library`, whether it is there, or `library_error`; `cuda`, such as [12, 8]; `init`, CUDA's error code, 0 if
    all is well; `devices`, each with name, memory in bytes and compute capability; `driver`, its version.
    """
    tell(stage="loading " + DRIVER_LIBRARY)
    try:
        cuda = ctypes.CDLL(DRIVER_LIBRARY)
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
        tell(devices=_driver_devices(cuda))
    tell(stage="asking NVML", driver=_driver_version())


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


def _driver_version() -> str | None:
    """Return the driver's version by NVML, such as 580.65.06; None without nvidia-ml-py."""
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else version
    except Exception:  # not installed, or no NVML beside libcuda
        return None


def required(framework: str, build: str, cudnn: str | None) -> tuple[str, ...]:
    """Return the names of the libraries that a build needs; none if its version of CUDA is not known here.

    Args:
        framework: name of the framework.
        build: the version of CUDA that it is built for, such as 12.6.
        cudnn: its version of cuDNN; None if it does not tell.
    """
    major = int(build.partition(".")[0])
    if major not in LIBRARIES:
        return ()
    first = cudnn.partition(".")[0] if cudnn else ""
    deep = f"libcudnn.so.{first}" if first.isdigit() else CUDNN[major]
    return (*LIBRARIES[major], deep, *(() if framework in OWN_NCCL else (NCCL,)))


def missing(seconds: float, names: Sequence[str]) -> tuple[list[str], str | None]:
    """Return those of the libraries that cannot be loaded, and why nothing is known, None if all were tried."""
    answer = child.ask(seconds, "libraries", *names)
    unusable = [f"{name} ({reason})" if reason else name for name, reason in answer.facts.get("missing", {}).items()]
    return unusable, answer.failure


def mindspore_build() -> str | None:
    """Return the newest version of CUDA that the installed MindSpore has a plugin for, such as 11.6; None without."""
    spec = importlib.util.find_spec("mindspore")
    folders = (spec.submodule_search_locations if spec else None) or ()
    plugins = [path.name for folder in folders for path in Path(folder).glob("lib/plugin/libmindspore_gpu.so.*")]
    versions = [name.removeprefix("libmindspore_gpu.so.") for name in plugins]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")], default=None)


def package_folders() -> list[Path]:
    """Return the folders of libraries of NVIDIA's packages: nvidia/cublas/lib, or nvidia/cu13/lib."""
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec else None) or ()
    return [folder for root in roots for folder in sorted(Path(root).glob("*/lib"))]


def probe_libraries(tell: Tell, *names: str) -> None:
    """Load each library as the loader finds it, or else from NVIDIA's packages.

    Facts: `missing`, name -> why it cannot be loaded, empty if there is no such file.
    """
    folders, failed = package_folders(), {}
    for name in names:
        tell(stage=f"loading {name}")
        reason = _load(name, folders)
        if reason is not None:
            failed[name] = reason
    tell(missing=failed)


def _load(name: str, folders: Sequence[Path]) -> str | None:
    """Load a library with its symbols visible to those after it; return why it cannot be, None if it can."""
    reason = ""
    for path in (name, *(str(folder / name) for folder in folders if (folder / name).exists())):
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            return None
        except OSError as error:
            text = str(error)
            reason = "" if text.startswith(f"{name}: cannot open shared object") else text
    return reason
