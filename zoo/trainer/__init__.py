"""The common trainer interface (protocol.py) and its three implementations, a folder per framework.

A fourth folder, onnx/, implements the half that predicts, for exported models.
"""

import importlib
from types import ModuleType

from zoo.data import extras
from zoo.frameworks import FRAMEWORKS, import_for


def load_backend(framework: str) -> ModuleType:
    """Import zoo.trainer.<framework>, which offers `start(launch, device, port) -> World`, `Trainer` and more.

    Raises:
        UserError: there is no such framework, or it is not installed.
    """
    return import_for(framework, f"zoo.trainer.{framework}", FRAMEWORKS, "the trainer")


def load_onnx_backend() -> ModuleType:
    """Import zoo.trainer.onnx, which offers `start` as the frameworks do, and `OnnxModel(file, arch, plan, world)`.

    Raises:
        UserError: ONNX Runtime is not installed.
    """
    with extras.named():
        return importlib.import_module("zoo.trainer.onnx")
