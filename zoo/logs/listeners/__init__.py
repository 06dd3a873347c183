"""Further logs of a run: a file each, found by its name in `listeners` of a recipe.

A file has `open_listener(folder, config)`, which returns a journal listener (`Listener` of zoo/logs/journal.py): it is
called with every event, on rank 0, after it is in <folder>/events.jsonl, and closed at the end.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path

from zoo.config.schema import Config
from zoo.data.errors import UserError, known_names
from zoo.logs.journal import Listener


def list_listeners() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def check_names(names: Sequence[str]) -> None:
    """Raise UserError for a name that no listener has, or that is given twice."""
    known = list_listeners()
    for place, name in enumerate(names):
        if name not in known:
            raise UserError(f"listeners: there is no {name!r}{known_names(name, known)}")
        if name in names[:place]:
            raise UserError(f"listeners: {name} is given twice; name it once")


def open_listeners(folder: str, config: Config) -> list[Listener]:
    modules = [importlib.import_module(f"zoo.logs.listeners.{name}") for name in config.listeners]
    return [module.open_listener(folder, config) for module in modules]
