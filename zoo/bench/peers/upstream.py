"""Imports from the user's copies of other projects, none of whose code is here, and their versions."""

import importlib
import importlib.metadata
import os
import subprocess
import sys
import types
from collections.abc import Sequence
from typing import Any

from zoo.data.errors import UserError
from zoo.distributed import machine

PACKAGES = (
    *("numpy", "opencv-python-headless", "pillow", "av", "decord", "nvidia-dali-cuda130", "torch", "torchvision"),
    *("mmsegmentation", "mmcv", "mmcv-lite", "mmengine", "mxnet", "paddlepaddle", "mindspore", "mindcv"),
)


def require_clones(folder: str) -> None:
    """Raise UserError if the folder of the copies, which --upstream names, does not exist."""
    if not os.path.isdir(folder):
        raise UserError(f"--upstream {folder}: no such folder; docs/performance.md says what to clone there")


def load(folder: str, name: str) -> Any:
    """Import a module of a copy, whose folder is at the front of Python's search path meanwhile.

    Raises:
        UserError: there is no such folder, or something that the module needs is not installed.
    """
    if not os.path.isdir(folder):
        raise UserError(f"{folder}: no such folder; docs/performance.md says what to clone")
    sys.path.insert(0, folder)
    try:
        return installed(name)
    finally:
        sys.path.remove(folder)  # folders of a copy may be named like packages that are imported later


def declare_packages(folder: str, names: Sequence[str]) -> None:
    """Let the modules of a copy's packages be imported without what their __init__.py import."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(folder, *name.split("."))]
        sys.modules.setdefault(name, package)


def installed(name: str) -> Any:
    """Import a module of a package.

    Raises:
        UserError: it, or something that it needs, is not installed, or in a build for other packages.
    """
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # the latter by torchvision beside another build of PyTorch
        raise UserError(f"{name}: {error}; docs/performance.md says what to install") from error


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
