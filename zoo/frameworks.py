"""The supported frameworks, and the import of the modules that need one of them."""

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Literal, get_args

from zoo.data import extras
from zoo.data.errors import UserError

Framework = Literal["torch", "paddle", "mindspore", "jax"]  # names of their Python packages
FRAMEWORKS: tuple[str, ...] = get_args(Framework)
CHANNELS_LAST = ("jax",)  # frameworks whose models take and return maps with channels last


def prepare(framework: str) -> None:
    """Let a framework find the CUDA libraries of the Python environment. To be called before it is imported."""
    if framework not in sys.modules:
        if framework == "mindspore":
            from zoo import cuda_libraries  # which the others do without

            cuda_libraries.prepare()
        with suppress(ImportError):  # behind a framework, its libgomp may find no static TLS left on ARM
            importlib.import_module("cv2")


def import_for(framework: str, module: str, available: Sequence[str], subject: str) -> ModuleType:
    """Import one of the project's modules that depend on a framework.

    Args:
        subject: subject of the error message, such as "the model resnet".
    """
    if framework not in available:
        raise UserError(
            f"framework: {subject} has no implementation for {framework!r}; choose one of: {', '.join(available)}"
        )
    prepare(framework)
    with extras.named():
        return importlib.import_module(module)
