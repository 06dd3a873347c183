"""Imports from the user's copies of other projects."""

import importlib
import os
import sys
from typing import Any

from data.errors import UserError


def load(folder: str, name: str) -> Any:
    """Import a module of a copy, whose folder goes to the front of Python's search path.

    Args:
        folder: what the project's own programs have as their folder.
        name: of the module, such as ops.dataset.

    Raises:
        UserError: there is no such folder, or something that the module needs is not installed.
    """
    if not os.path.isdir(folder):
        raise UserError(f"{folder}: no such folder; docs/performance.md says what to clone")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return installed(name)


def installed(name: str) -> Any:
    """Import a module of a package.

    Raises:
        UserError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name}: {error}; docs/performance.md says what to install") from error
