"""Losses: a file each, zoo/losses/<task>/<name>.py, with its keys of section `task:` and its formula.

`task.loss` of a recipe is a name of LOSSES. The fields of the class are the keys of section `task:`: those of the task,
which are in the folder's __init__.py, and the loss's own. The formula is written over the operations of `ops`, which
are zoo/trainer/<framework>/ops.py, or zoo/trainer/numpy_ops.py: so it holds in every framework, in every precision.

Numbers that a formula derives from settings are cached properties: MindSpore computes with Python numbers in fp32.
"""

from dataclasses import fields
from typing import Any

from zoo.data.errors import UserError, known_names
from zoo.losses.classify import binary_cross_entropy
from zoo.losses.classify import cross_entropy as classify_cross_entropy
from zoo.losses.face import adaface, arcface, combined, cosface
from zoo.losses.segment import cross_entropy as segment_cross_entropy
from zoo.losses.segment import dice, focal, lovasz

LOSSES: dict[str, dict[str, type[Any]]] = {
    "classify": {"binary_cross_entropy": binary_cross_entropy.Loss, "cross_entropy": classify_cross_entropy.Loss},
    "face": {"adaface": adaface.Loss, "arcface": arcface.Loss, "combined": combined.Loss, "cosface": cosface.Loss},
    "segment": {
        "cross_entropy": segment_cross_entropy.Loss,
        "dice": dice.Loss,
        "focal": focal.Loss,
        "lovasz": lovasz.Loss,
    },
}


def load_loss(task: str, name: str) -> type[Any]:
    """Return the class of a loss, which is that of section `task:`.

    Raises:
        UserError: the task has no such loss.
    """
    if name not in LOSSES[task]:
        raise UserError(f"the task {task} has no loss {name!r}{known_names(name, sorted(LOSSES[task]))}")
    return LOSSES[task][name]


def owner(settings: type[Any], key: str) -> str:
    """Return what has a key of section `task:` that `settings` lacks: "task.loss=dice"; "" for nothing."""
    for task in sorted(LOSSES, key=lambda task: task != settings.task):
        for name, loss in LOSSES[task].items():
            if key in {field.name for field in fields(loss)}:
                return f"task.loss={name}" if task == settings.task else f"losses of the task {task}"
    return ""
