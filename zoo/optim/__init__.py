"""Optimizers as specifications: a file each, with slots, hyper-parameters and the formula with its source.

zoo/trainer/<framework>/optimizers/ has the update of each in a file of the same name. What all optimizers share is in
section `optim` of zoo/config/schema.py, whose settings class each one extends. zoo/optim/schedules/ has the learning
rate schedules.
"""

import importlib
from dataclasses import field, fields, make_dataclass
from functools import cache
from typing import Any, get_type_hints

from zoo.config.schema import Optim
from zoo.config.suggestions import suggestion
from zoo.data.errors import UserError
from zoo.optim.schedules import list_schedules, load_schedule

NAMES = ("sgd", "sgd_nesterov", "adamw", "lars", "lamb")


def load_settings(name: str, schedule: str = "step") -> type[Optim]:
    """Return the settings class of section `optim`: with the keys of an optimizer and those of a schedule.

    Its attribute OTHER_KEYS has the keys of other optimizers and schedules, and the setting that selects one of them.

    Raises:
        UserError: there is no such optimizer or schedule.
    """
    if name not in NAMES:
        raise UserError(f"there is no optimizer {name!r}{suggestion(name, NAMES)}")
    return _settings(name, schedule)


@cache
def _settings(name: str, schedule: str) -> type[Optim]:
    settings = _optimizer(name)
    module, keys = load_schedule(schedule), _keys(schedule)

    def check(optim: Any) -> None:
        settings.__post_init__(optim)
        if keys:
            keys(**{key.name: getattr(optim, key.name) for key in fields(keys)})
        if optim.min_lr and "min_lr" not in module.KEYS:
            raise ValueError(f"min_lr: the schedule {schedule} has none; set it to 0, or choose another optim.schedule")

    hints = get_type_hints(keys) if keys else {}
    options = [(key.name, hints[key.name], field(default=key.default)) for key in fields(keys)] if keys else []
    return make_dataclass(
        "Settings",
        [("schedule", str, field(default=schedule)), *options],
        bases=(settings,),
        namespace={"__post_init__": check, "__doc__": settings.__doc__, "OTHER_KEYS": _other_keys(name, schedule)},
        frozen=True,
    )


def _keys(schedule: str) -> Any:
    """Return the dataclass of a schedule's own keys, None if it has none."""
    return getattr(load_schedule(schedule), "Keys", None)


def _other_keys(name: str, schedule: str) -> dict[str, str]:
    """Return the keys of other optimizers and schedules, and a setting that selects one that has each."""
    schedules = [other for other in list_schedules() if other != schedule and _keys(other)]
    found = {key.name: f"optim.schedule={other}" for other in schedules for key in fields(_keys(other))}
    mine = {key.name for key in fields(_optimizer(name))}
    for other in reversed(NAMES):  # the first that has it is named
        found |= {key.name: f"optim.name={other}" for key in fields(_optimizer(other)) if key.name not in mine}
    return found


def _optimizer(name: str) -> type[Optim]:
    """Return the settings class of an optimizer."""
    settings: type[Optim] = importlib.import_module(f"zoo.optim.{name}").Settings
    return settings
