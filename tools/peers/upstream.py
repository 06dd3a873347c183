"""Imports from the user's copies of other projects."""

import importlib
import os
import sys
from typing import Any

from data.errors import UserError


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


def installed(name: str) -> Any:
    """Import a module of a package.

    Raises:
        UserError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name}: {error}; docs/performance.md says what to install") from error
