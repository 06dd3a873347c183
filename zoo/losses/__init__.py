"""Losses: a file each, zoo/losses/<task>/<name>.py, with its keys of section `task:` and its formula.

`task.loss` of a recipe is a name of LOSSES. The fields of the class are the keys of section `task:`: those of the task,
which are in the folder's __init__.py, and the loss's own. The formula is written over the operations of `ops`, which
are zoo/trainer/<framework>/ops.py, or zoo/trainer/numpy_ops.py: so it holds in every framework, in every precision.

Numbers that a formula derives from settings are cached properties: MindSpore computes with Python numbers in fp32.

Other packages add losses by entry points of the groups `zoo.losses.<task>` (zoo/data/plugins.py).
"""

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any

from zoo.data import plugins
from zoo.data.errors import UserError, known_names
from zoo.data.fields import Doc, SettingError, Word

LossName = Annotated[Word, Doc("Loss, a file of zoo/losses/<task>.")]

LOSSES = {  # by task and name: the module, which is imported by the runs that use it
    "classify": {
        "binary_cross_entropy": "zoo.losses.classify.binary_cross_entropy",
        "cross_entropy": "zoo.losses.classify.cross_entropy",
    },
    "face": {
        "adaface": "zoo.losses.face.adaface",
        "arcface": "zoo.losses.face.arcface",
        "combined": "zoo.losses.face.combined",
        "cosface": "zoo.losses.face.cosface",
    },
    "multilabel": {"binary_cross_entropy": "zoo.losses.multilabel.binary_cross_entropy"},
    "segment": {
        "cross_entropy": "zoo.losses.segment.cross_entropy",
        "dice": "zoo.losses.segment.dice",
        "focal": "zoo.losses.segment.focal",
        "lovasz": "zoo.losses.segment.lovasz",
    },
}


def load_loss(task: str, name: str) -> type[Any]:
    group, own = f"{__name__}.{task}", LOSSES.get(task, {})
    if name not in (known := plugins.names(group, own)):
        raise UserError(f"the task {task} has no loss {name!r}{known_names(name, known)}")
    module = plugins.load("loss", group, own, name, "Loss")
    if (module.Loss.task, getattr(module.Loss, "loss", None)) != (task, name):
        raise UserError(f'{module.__file__}: Loss needs `loss: str = "{name}"`, and must be one of the task {task}')
    return module.Loss


def check_class_weights(weights: Sequence[float] | None) -> None:
    """Check numbers of the key class_weights, but for how many there are, which only the data knows.

    Raises:
        ValueError: a weight is negative or infinite, or all are 0.
    """
    if weights is None:
        return
    if not weights or min(weights) < 0 or not math.isfinite(sum(weights)) or not any(weights):
        raise SettingError("class_weights", "must be finite numbers, not below 0 and not all 0, one for each class")


def owner(settings: type[Any], key: str) -> str:
    """Return what has a key of section `task:` that `settings` lacks: "task.loss=dice"; "" for nothing."""
    for task in sorted(LOSSES, key=lambda task: task != settings.task):
        for name in LOSSES[task]:
            if key in {field.name for field in fields(load_loss(task, name))}:
                return f"task.loss={name}" if task == settings.task else f"losses of the task {task}"
    return ""
