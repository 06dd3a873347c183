"""Learning rate schedules: a file each, found by its name, `optim.schedule` of a recipe.

A file has
- `factor(optim, at)`: what the learning rate after the warm-up is multiplied by at a `Position`; a pure function;
- `describe(optim, unit)`: a few words for --plan, where `unit` is that of the length of the run, epochs or steps;
- `KEYS`: the keys of class Optim (zoo/config/schema.py) that it uses;
- `Keys`, if it needs further keys: a frozen dataclass whose fields become keys of section `optim`. `__post_init__`
  raises ValueError("key: what is wrong").

Warm-up, the growth with the global batch and optim.update belong to zoo/run/schedule.py.
"""

import importlib
import math
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from zoo.config.schema import Optim
from zoo.data.errors import UserError, known_names


class Position(NamedTuple):
    """Where a run is after its warm-up.

    Attributes:
        step: updates since the end of the warm-up, epochs with optim.update=epoch; 0 for the first one.
        steps: of them in the run.
        progress: of the schedule, 0 for the first step, towards 1 (optim.min_lr_at).
        elapsed: since the start of the run: epochs where its length is given in epochs, otherwise steps.
    """

    step: int
    steps: int
    progress: float
    elapsed: Fraction | int


def list_schedules() -> list[str]:
    """Return the names of all schedules."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def load_schedule(name: str) -> ModuleType:
    """Import and return the module of a schedule.

    Raises:
        UserError: there is no such schedule.
    """
    names = list_schedules()
    if name not in names:
        raise UserError(f"there is no schedule {name!r}{known_names(name, names)}")
    return importlib.import_module(f"zoo.optim.schedules.{name}")


def min_factor(optim: Optim) -> float:
    """Return the factor of optim.min_lr."""
    return optim.min_lr / optim.lr if optim.min_lr else 0.0


def half_cosine(start: float, end: float, progress: float) -> float:
    """Return the value between start and end that half a wave of the cosine gives."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))
