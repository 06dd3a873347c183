"""Data sets as numpy batches. Nothing in this package imports zoo or a framework.

A data set is a module `data/datasets/<name>.py` or `data/demo/<name>.py` with `Settings` (the `data:` section of a
recipe), `load(settings)` -> (training split, validation split) and `describe(train, val, method)` -> DataRecord
(data/record.py). Both splits are a Dataset of data/stream.py. The validation split also has `protocol`, a Protocol of
data/datasets/common/protocol.py: the name of the set and what the model sees of a sample (frames, clips, crops, sizes,
scales), from which a run makes its protocol id, such as k400/8x1x1@224. Whatever changes the metric of the same weights
on the same files must change it. Helper modules that several data sets share are in the `common` folders.
"""

import importlib
from pathlib import Path
from types import ModuleType

from zoo.data.errors import UserError

FOLDERS = ("datasets", "demo")


def find(name: str) -> ModuleType:
    """Import the module of a data set.

    Raises:
        UserError: There is no data set of this name; the message lists all names.
    """
    folder = next((folder for folder in FOLDERS if name in _modules(folder)), None)
    if folder is None:
        raise UserError(f"there is no data set {name!r}; choose one of {', '.join(names())}")
    return importlib.import_module(f"zoo.data.{folder}.{name}")


def names() -> list[str]:
    """Return the sorted names of all data sets."""
    return sorted(name for folder in FOLDERS for name in _modules(folder))


def _modules(folder: str) -> list[str]:
    return [path.stem for path in (Path(__file__).parent / folder).glob("*.py") if path.stem != "__init__"]
