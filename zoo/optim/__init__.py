"""Optimizers: a file each, with slots, hyper-parameters and the formula with its source.

What all optimizers share is in section `optim` of zoo/config/schema.py, whose settings class each one extends. The
formula is written over the operations of `ops`, which are zoo/trainer/<framework>/ops.py, or zoo/trainer/numpy_ops.py.
Faster kernels of a framework are in zoo/trainer/<framework>/optimizer.py. schedules.py has the learning rate schedules.
"""

from dataclasses import fields

from zoo.config.suggestions import suggestion
from zoo.data.errors import UserError
from zoo.optim import adamw, base, lamb, lars, sgd, sgd_nesterov

OPTIMIZERS: dict[str, type[base.Settings]] = {
    "sgd": sgd.Settings,
    "sgd_nesterov": sgd_nesterov.Settings,
    "adamw": adamw.Settings,
    "lars": lars.Settings,
    "lamb": lamb.Settings,
}


def load_settings(name: str) -> type[base.Settings]:
    """Return the class of section `optim` with an optimizer.

    Raises:
        UserError: there is no such optimizer.
    """
    if name not in OPTIMIZERS:
        raise UserError(f"there is no optimizer {name!r}{suggestion(name, list(OPTIMIZERS))}")
    return OPTIMIZERS[name]


def owner(settings: type, key: str) -> str:
    """Return what has a key of section `optim` that `settings` lacks: "optim.name=adamw"; "" for nothing."""
    found = (name for name, other in OPTIMIZERS.items() if key in {field.name for field in fields(other)})
    return next((f"optim.name={name}" for name in found), "")
