"""Shape of a sample and number of classes: of the data where they are, else of the published set of the recipe."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from zoo import data
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.data.datasets import synthetic
from zoo.data.errors import UserError

KINDS = {  # name of a data set -> data.kind of synthetic data of the same shape
    "imagenet": "image",
    "shapes": "image",
    "kinetics": "clip",
    "motion": "clip",
    "cityscapes": "scene",
    "streets": "scene",
    "faces": "face",
    "portraits": "face",
}
CLASSES = {  # last part of data.root in the shipped recipes -> number of classes
    "k400": 400,
    "ssv2": 174,
    "imagenet": 1000,
    "cityscapes": 19,
    "ms1m": 85742,
    "glint360k": 360232,
    "motion": 8,
    "shapes": 8,
    "streets": 19,
}
DEMOS = ("motion", "shapes", "streets", "portraits")  # sets that a run generates
SHAPE_KEYS = ("size", "segments", "crop", "base_size")


class Described(NamedTuple):
    """What an estimate needs to know of the data.

    Attributes:
        fields: of a training sample; the model's input first.
        classes: number of classes.
        samples: of an epoch; None if not known.
        origin: of these numbers, in words.
    """

    fields: Sequence[Field]
    classes: int
    samples: int | None
    origin: str


def describe(cfg: Config, name: str, classes: int | None, samples: int | None) -> Described:
    """Return shape and size of a recipe's data.

    Args:
        cfg: the recipe.
        name: of its data set.
        classes: number of classes that counts instead; None for that of the data.
        samples: number of training samples that counts instead, likewise.

    Raises:
        UserError: the data are not there, and their number of classes is not known.
    """
    root = getattr(cfg.data, "root", None)
    if root is None or os.path.isdir(root):
        found = _of_files(cfg, name)
    else:
        found = _published(cfg, name, root, classes)
    return found._replace(classes=classes or found.classes, samples=samples or found.samples)


def _of_files(cfg: Config, name: str) -> Described:
    train_set, _ = data.find(name).load(cfg.data)
    return Described(train_set.fields, len(train_set.classes), len(train_set), f"the data set {name}")


def _published(cfg: Config, name: str, root: str, classes: int | None) -> Described:
    """Return the numbers of a published data set, with the sizes of the recipe."""
    base = os.path.basename(os.path.normpath(root))
    count = classes or CLASSES.get(base) or getattr(cfg.data, "identities", None)  # of generated faces
    if name not in KINDS or count is None:
        raise UserError(f"data.root: {root} is not there, and its number of classes is not known; give --classes N")
    kind = KINDS[name]
    keys = {key: getattr(cfg.data, key, None) for key in SHAPE_KEYS if key in synthetic.KEYS[kind]}
    settings: Any = synthetic.Settings(kind=kind, num_classes=count, **keys)  # type: ignore[arg-type]
    train_set, _ = synthetic.load(settings)
    length = cfg.upstream.train_samples if cfg.upstream else None
    return Described(train_set.fields, count, length, f"{_origin(name)}, since {root} is not there")


def _origin(name: str) -> str:
    """Return where the sizes of a data set that is not there come from."""
    return "sizes of the set that a run generates" if name in DEMOS else "published sizes"
