"""Tasks: what a batch holds besides the input, what is minimised, and what is measured. numpy only."""

import importlib
import os
from types import ModuleType

from data.errors import UserError


def load_task(name: str) -> ModuleType:
    """The module of a task. Raises UserError with the tasks there are."""
    names = sorted(
        file[:-3] for file in os.listdir(os.path.dirname(__file__)) if file.endswith(".py") and file != "__init__.py"
    )
    if name not in names:
        raise UserError(f"there is no task {name!r}; there are: {', '.join(names)}")
    return importlib.import_module(f"zoo.tasks.{name}")
