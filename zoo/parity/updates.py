"""Optimizers of the zoo for sides that have none of their own: their formulas in numpy, along each side's gradients."""

import re
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np

from zoo.data.errors import UserError, known_names
from zoo.data.fields import SettingError
from zoo.optim import OPTIMIZERS, load_settings

WORDS = re.compile(r"(?P<name>\w+)(?:\((?P<settings>[^()]*)\))?")
OPS = SimpleNamespace(
    number=lambda value, dtype: value,
    astype=lambda value, dtype: value,
    sqrt=np.sqrt,
    where=np.where,
    logical_and=np.logical_and,
    ones_like=np.ones_like,
    norm=lambda x, ranks: np.sqrt(np.square(x).sum()),
    matmul=lambda a, b, transpose_a, transpose_b, dtype: (a.T if transpose_a else a) @ (b.T if transpose_b else b),
    bias_correction=lambda log_beta, applied, dtype: -np.expm1(log_beta * applied),
)


def settings_of(text: str) -> Any:
    """Return the settings of an optimizer written as sgd(lr=0.1, momentum=0.9).

    Raises:
        UserError: there is no such optimizer, or it has no such setting.
    """
    found = WORDS.fullmatch(text)
    if not found:
        raise UserError(f"--optimizer {text}: write NAME(KEY=VALUE, ...), or SIDE=FILE.py:FUNCTION")
    if found["name"] not in OPTIMIZERS:
        raise UserError(f"--optimizer: there is no {found['name']!r}{known_names(found['name'], tuple(OPTIMIZERS))}")
    try:
        pairs = [word.split("=", 1) for word in (found["settings"] or "").split(",") if word.strip()]
        settings = {key.strip(): literal_eval(value.strip()) for key, value in pairs}
    except (ValueError, SyntaxError):
        raise UserError(f"--optimizer {text}: write NAME(KEY=VALUE, ...) with numbers, such as sgd(lr=0.1)") from None
    cls = load_settings(found["name"])
    names = tuple(field.name for field in fields(cls))
    for key in settings:
        if key not in names:
            raise UserError(f"--optimizer {text}: there is no {key!r}{known_names(key, names)}")
    try:
        return cls(**settings)
    except (ValueError, TypeError, SettingError) as error:
        raise UserError(f"--optimizer {text}: {error}") from None


class Optimizer:
    """Updates a model's weights in numpy."""

    def __init__(self, text: str, model: Any):
        from zoo.optim.base import Math

        self.settings, self.math, self.model = settings_of(text), Math(OPS), model
        self.slots: dict[str, tuple[np.ndarray, ...]] = {}
        self.applied = 0

    def step(self, gradients: Mapping[str, np.ndarray]) -> None:
        self.applied += 1
        weights = self.model.arrays()
        for name, gradient in gradients.items():
            slots = self.slots.get(name) or tuple(np.zeros_like(gradient) for _ in self.settings.slots)
            decay = self.settings.weight_decay
            direction, self.slots[name] = self.settings.direction(
                self.math, weights[name], gradient, slots, decay, self.applied
            )
            weights[name] = weights[name] - self.settings.lr * direction
        self.model.load({name: weights[name] for name in gradients})
