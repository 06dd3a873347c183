"""Versions of what takes part in a measurement, and the processor."""

import importlib.metadata
import os
import platform
import subprocess
from typing import Any

PACKAGES = (
    "numpy", "opencv-python-headless", "pillow", "av", "decord", "grain", "nvidia-dali-cuda130", "torch", "torchvision",
    "mmsegmentation", "mmcv", "mmcv-lite", "mmengine", "mxnet", "paddlepaddle", "mindspore", "mindcv",
)  # fmt: skip


def describe_machine(clones_folder: str) -> dict[str, Any]:
    """Return processor, versions of packages, and commits of the copies of other projects in a folder."""
    installed = {name: _version(name) for name in PACKAGES}
    clones = sorted(entry.path for entry in os.scandir(clones_folder) if entry.is_dir())
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: version for name, version in installed.items() if version},
        "clones": {os.path.basename(folder): _commit(folder) for folder in clones},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit(folder: str) -> str | None:
    """Return the commit of a clone; None if it is none."""
    command = ["git", "-C", folder, "rev-parse", "HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or None if os.path.exists(os.path.join(folder, ".git")) else None
