"""The common trainer interface (protocol.py) and its implementations, a folder per framework.

A fourth folder, onnx/, implements the half that predicts, for exported models.
"""

import importlib
from types import ModuleType

from zoo.data import extras
from zoo.frameworks import FRAMEWORKS, import_for


def load_backend(framework: str) -> ModuleType:
    """Import zoo.trainer.<framework>, which offers `start(launch, device, port) -> World`, `Trainer` and more."""
    return import_for(framework, f"zoo.trainer.{framework}", FRAMEWORKS, "the trainer")


def load_onnx_backend() -> ModuleType:
    """Import zoo.trainer.onnx, which offers `start` as the frameworks do, and `OnnxModel(file, arch, plan, world)`."""
    with extras.named():
        return importlib.import_module("zoo.trainer.onnx")
