"""Imports from the user's copies of other projects, none of whose code is here."""

import importlib
import os
import sys
from typing import Any

from zoo.data.errors import UserError


def require_clones(folder: str) -> None:
    """Raise UserError if the folder of the copies, which --upstream names, does not exist."""
    if not os.path.isdir(folder):
        raise UserError(f"--upstream {folder}: no such folder; docs/performance.md says what to clone there")


def load(folder: str, name: str) -> Any:
    """Import a module of a copy, whose folder is at the front of Python's search path meanwhile."""
    if not os.path.isdir(folder):
        raise UserError(f"{folder}: no such folder; docs/performance.md says what to clone")
    sys.path.insert(0, folder)
    try:
        return installed(name)
    finally:
        sys.path.remove(folder)  # folders of a copy may be named like packages that are imported later


def installed(name: str) -> Any:
    """Import a module of a package."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # the latter by torchvision beside another build of PyTorch
        raise UserError(f"{name}: {error}; docs/performance.md says what to install") from error
