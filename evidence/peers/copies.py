"""Preparations for imports from copies of other projects, and their versions."""

import importlib
import importlib.metadata
import os
import subprocess
import sys
import types
from collections.abc import Sequence
from typing import Any

from zoo.distributed import machine

PACKAGES = (
    *("numpy", "opencv-python-headless", "pillow", "av", "decord", "nvidia-dali-cuda130", "torch", "torchvision"),
    *("mmsegmentation", "mmcv", "mmcv-lite", "mmengine", "mxnet", "paddlepaddle", "mindspore", "mindcv"),
)


def declare_packages(folder: str, names: Sequence[str]) -> None:
    """Let the modules of a copy's packages be imported without what their __init__.py import."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(folder, *name.split("."))]
        sys.modules.setdefault(name, package)


def replace_operators(operator: type) -> None:
    """Put a class in the place of each of mmcv's compiled operators, if mmcv-lite has none."""

    def get(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return operator

    try:
        importlib.import_module("mmcv._ext")
    except Exception:
        operators: Any = types.ModuleType("mmcv.ops")
        operators.__getattr__ = get
        sys.modules["mmcv.ops"] = operators


def describe_machine(clones: str) -> dict[str, Any]:
    """Return processor, versions of packages, and commits of the copies of other projects in a folder."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    folders = sorted(entry.path for entry in os.scandir(clones) if os.path.exists(os.path.join(entry.path, ".git")))
    return {
        "processor": machine.cpu_name(),
        "cores": os.cpu_count(),
        "packages": versions,
        "clones": {os.path.basename(folder): commit(folder) for folder in folders},
    }


def commit(folder: str) -> str | None:
    """Return the commit of a copy; None if it has no history."""
    command = ["git", "-C", folder, "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
