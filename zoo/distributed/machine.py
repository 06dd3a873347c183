"""Machines of a run, for its record: hardware, operating system, libraries and environment of every host."""

import math
import os
import platform
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from zoo.data import host
from zoo.distributed.environment import recorded
from zoo.distributed.group import Group
from zoo.trainer.world import World

PROC, SYS, DEV = Path("/proc"), Path("/sys"), Path("/dev")
ACCELERATOR = re.compile(r"(nvidia|davinci)\d+")  # a device file of a GPU or NPU, used or not
ASCEND_DRIVER = Path("/usr/local/Ascend/driver/version.info")
MAX_VALUE = 1000  # characters of a variable
PACKAGES = {  # library -> distributions that provide it
    "numpy": ("numpy",),
    "opencv": ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python"),
    "pillow": ("pillow",),
    "av": ("av",),
    "cykooz-resizer": ("cykooz-resizer",),
    "nvimgcodec": ("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12"),
    "decord": ("decord", "decord2", "eva-decord"),
    "albumentations": ("albumentations", "albumentationsx"),
    "dali": ("nvidia-dali-cuda130", "nvidia-dali-cuda120", "nvidia-dali-cuda110"),
}


def gather(group: Group, world: World, storage: str) -> list[dict[str, Any]]:
    """Return one entry per host, in the order of their first ranks. A collective call.

    Args:
        storage: a path in the file system that counts as the host's storage: the folder of the data.

    Returns:
        Dictionaries of `describe`, with the name of the host, its ranks, the threads that they may use together and
        the accelerators that they compute on. Variables and libraries are those of the host's first rank.
    """
    mine = {
        "name": socket.gethostname(),
        "cores": host.cores(),
        "quota": host.cpu_quota(),
        "accelerator": world.accelerator(),
        "machine": describe(world.libraries(), storage) if group.launch.local_rank == 0 else None,
    }
    ranks = group.all_gather(mine)
    hosts = []
    for name in dict.fromkeys(rank["name"] for rank in ranks):
        numbers = [number for number, rank in enumerate(ranks) if rank["name"] == name]
        local = [ranks[number] for number in numbers]
        machine: dict[str, Any] = next((rank["machine"] for rank in local if rank["machine"]), {})
        cores = len({core for rank in local for core in rank["cores"]})
        accelerators = [rank["accelerator"] for rank in local if rank["accelerator"]]
        quota = local[0]["quota"]
        threads = cores if quota is None else min(cores, math.ceil(quota))
        hosts.append({"name": name, "ranks": numbers, **machine, "threads": threads, "accelerators": accelerators})
    return hosts


def describe(libraries: Mapping[str, str | None], storage: str) -> dict[str, Any]:
    """Return the facts of this host, None for what is unknown. libraries: of the framework (World.libraries)."""
    sockets, cores = _topology()
    return {
        "os": _os_name(),
        "kernel": platform.release(),
        "hardware": _hardware(),
        "cpu": cpu_name(),
        "sockets": sockets,
        "cores": cores,
        "memory_bytes": _memory(),
        "storage_bytes": _size_of_storage(storage),
        "python": platform.python_version(),
        "accelerators_present": sum(bool(ACCELERATOR.fullmatch(path.name)) for path in DEV.glob("[nd]*")),
        "driver": _driver(),
        "libraries": {**libraries, **{name: _installed(names) for name, names in PACKAGES.items()}},
        "environment": {name: value[:MAX_VALUE] for name, value in recorded(os.environ).items()},
    }


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return f"{platform.system()} {platform.release()}"


def _hardware() -> str | None:
    names = [_read(SYS / "class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    if not any(names):
        names = [_read(PROC / "device-tree/model")]
    return " ".join(name for name in names if name) or None


def cpu_name() -> str:
    """Return the model name of the processor; on ARM, where /proc/cpuinfo has none, the architecture."""
    match = re.search(r"^(?:model name|cpu model|Model)\s*:\s*(\S.*)$", _read(PROC / "cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def _topology() -> tuple[int | None, int | None]:
    """Return the number of processors (sockets) and of physical cores that are online."""
    packages, cores = set(), set()
    for folder in SYS.glob("devices/system/cpu/cpu[0-9]*/topology"):
        package = _read(folder / "physical_package_id")
        packages.add(package)
        cores.add((package, _read(folder / "die_id"), _read(folder / "core_id")))
    return len(packages) or None, len(cores) or psutil.cpu_count(logical=False)


def _memory() -> int:
    total, limit = psutil.virtual_memory().total, _read(host.CGROUP / "memory.max")
    return min(total, int(limit)) if limit.isdigit() else total


def _size_of_storage(path: str) -> int:
    """Return the size of the file system of a path, or of the nearest folder that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(os.path.abspath(path))
    return shutil.disk_usage(path).total


def _driver() -> str | None:
    version = _read(SYS / "module/nvidia/version")
    if version:
        return version
    match = re.search(r"^Version=(\S+)", _read(ASCEND_DRIVER), re.MULTILINE)
    return match[1] if match else None


def _installed(distributions: Sequence[str]) -> str | None:
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""
