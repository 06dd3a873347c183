"""Data sets as numpy batches. Nothing in here knows a network or imports a framework.

A data set is a module data/<name>.py with `Settings` (the `data:` section of a recipe), `load(settings)` -> (training
split, validation split) and `checksum(train, val)`.
"""
import importlib
import os
from types import ModuleType
from typing import List

from data.errors import UserError


def find(name: str) -> ModuleType:
    """The module of a data set. Raises UserError with the names there are."""
    if name in names():
        return importlib.import_module(f"data.{name}")
    raise UserError(f"there is no data set {name!r}; there are: {', '.join(names())}")


def names() -> List[str]:
    """Modules of this folder that define a data set's Settings."""
    folder = os.path.dirname(__file__)
    found = []
    for file in sorted(os.listdir(folder)):
        if file.endswith(".py") and file != "__init__.py":
            with open(os.path.join(folder, file), encoding="utf-8") as source:
                if "\nclass Settings" in source.read():
                    found.append(file[:-3])
    return found
