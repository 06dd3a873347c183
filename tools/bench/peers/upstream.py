"""Imports from the user's copies of other projects."""

import importlib
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

from zoo.data.errors import UserError


def require_clones(folder: str) -> None:
    """Raise UserError if the folder of the copies, which --upstream names, does not exist."""
    if not os.path.isdir(folder):
        raise UserError(f"--upstream {folder}: no such folder; docs/performance.md says what to clone there")


def load(folder: str, name: str) -> Any:
    """Import a module of a copy, whose folder is at the front of Python's search path meanwhile.

    Args:
        folder: what the project's own programs have as their folder.
        name: of the module, such as ops.dataset.

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
    """Let the modules of a copy's packages be imported without what their __init__.py import.

    Args:
        folder: of the copy.
        names: of the packages, outer ones first.
    """
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(folder, *name.split("."))]
        sys.modules.setdefault(name, package)


def installed(name: str) -> Any:
    """Import a module of a package.

    Raises:
        UserError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name}: {error}; docs/performance.md says what to install") from error
