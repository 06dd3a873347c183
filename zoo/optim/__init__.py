"""Optimizers: a file each, with slots, hyper-parameters and the formula with its source.

What all optimizers share is in section `optim` of zoo/config/schema.py, whose settings class each one extends. The
formula is written over the operations of `ops`, which are zoo/trainer/<framework>/ops.py, or zoo/trainer/numpy_ops.py.
Faster kernels of a framework are in zoo/trainer/<framework>/optimizer.py. schedules.py has the learning rate schedules.

Other packages add optimizers by entry points of the group `zoo.optimizers` (zoo/data/plugins.py).
"""

from dataclasses import fields
from typing import Any

from zoo.data import plugins
from zoo.data.errors import UserError

OPTIMIZERS = {  # by name: the module, which is imported by the runs that use it
    "sgd": "zoo.optim.sgd",
    "sgd_nesterov": "zoo.optim.sgd_nesterov",
    "adamw": "zoo.optim.adamw",
    "lars": "zoo.optim.lars",
    "lamb": "zoo.optim.lamb",
    "muon": "zoo.optim.muon",
}


def load_settings(name: str) -> type[Any]:
    """Return the class of section `optim` with an optimizer."""
    module = plugins.load("optimizer", "zoo.optimizers", OPTIMIZERS, name, "Settings")
    if module.Settings.name != name:  # by which frameworks choose their kernels
        raise UserError(f'{module.__file__}: Settings needs `name: ClassVar[str] = "{name}"`')
    return module.Settings


def owner(settings: type, key: str) -> str:
    """Return what has a key of section `optim` that `settings` lacks: "optim.name=adamw"; "" for nothing."""
    found = (name for name in OPTIMIZERS if key in {field.name for field in fields(load_settings(name))})
    return next((f"optim.name={name}" for name in found), "")
