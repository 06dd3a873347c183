"""Optimizers as specifications: a file each, with slots, hyper-parameters and the formula with its source.

zoo/trainer/<framework>/optimizers/ has the update of each in a file of the same name. What all optimizers share is in
section `optim` of zoo/config/schema.py, whose settings class each one extends.
"""

import importlib

from data.errors import UserError
from zoo.config.schema import Optim
from zoo.config.suggestions import suggestion

NAMES = ("sgd", "sgd_nesterov", "adamw", "lars", "lamb")


def load_settings(name: str) -> type[Optim]:
    """Return the settings class of an optimizer: section `optim` with its own hyper-parameters.

    Raises:
        UserError: there is no such optimizer.
    """
    if name not in NAMES:
        raise UserError(f"there is no optimizer {name!r}{suggestion(name, NAMES)}")
    return importlib.import_module(f"zoo.optim.{name}").Settings
