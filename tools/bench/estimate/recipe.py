"""Shapes and numbers of a recipe, without its data: what a sample is, and what an update sends."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo import data
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.data.datasets import synthetic
from zoo.data.errors import UserError
from zoo.models import Spec
from zoo.trainer import sharding

FP32_SIZE = 4  # bytes
KINDS = {  # name of a data set -> data.kind of synthetic data of the same shape
    **dict.fromkeys(("imagenet", "shapes"), "image"),
    **dict.fromkeys(("kinetics", "motion"), "clip"),
    **dict.fromkeys(("cityscapes", "streets"), "scene"),
    **dict.fromkeys(("faces", "portraits"), "face"),
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
SHAPE_KEYS = ("size", "segments", "crop", "base_size")


class Described(NamedTuple):
    """Data of a recipe.

    Attributes:
        fields: fields of a training sample; the model's input first.
        classes: number of classes.
        samples: samples per epoch; None if not known.
        origin: source of these numbers, in words.
    """

    fields: Sequence[Field]
    classes: int
    samples: int | None
    origin: str


def describe(cfg: Config, name: str, classes: int | None = None, samples: int | None = None) -> Described:
    """Return shape and size of a recipe's data where they are, else those of the published set.

    Args:
        cfg: the recipe.
        name: name of its data set.
        classes: number of classes that counts instead; None for that of the data.
        samples: number of training samples that counts instead, likewise.

    Raises:
        UserError: the data are not there, and their number of classes is not known.
    """
    root = getattr(cfg.data, "root", None)
    if root is None or os.path.isdir(root):
        train_set, _ = data.find(name).load(cfg.data)
        found = Described(train_set.fields, len(train_set.classes), len(train_set), f"the data set {name}")
        return found._replace(classes=classes or found.classes, samples=samples or found.samples)
    base = os.path.basename(os.path.normpath(root))
    count = classes or CLASSES.get(base) or getattr(cfg.data, "identities", None)  # of generated faces
    if name not in KINDS or count is None:
        raise UserError(f"data.root: {root} is not there, and its number of classes is not known; give --classes N")
    keys = {key: getattr(cfg.data, key, None) for key in SHAPE_KEYS if key in synthetic.KEYS[KINDS[name]]}
    settings: Any = synthetic.Settings(kind=KINDS[name], num_classes=count, **keys)  # type: ignore[arg-type]
    train_set, _ = synthetic.load(settings)
    length = samples or (cfg.upstream.train_samples if cfg.upstream else None)
    return Described(train_set.fields, count, length, f"sizes of the set {base}, since {root} is not there")


def is_trained(spec: Spec, arch: Any, name: str) -> bool:
    """Return whether a tensor is a parameter that the recipe does not freeze."""
    is_statistic = name.endswith((".running_mean", ".running_var"))
    return not is_statistic and spec.lr_and_decay_scale(arch, name)[0] != 0


def bytes_of(shapes: Mapping[str, Sequence[int]]) -> int:
    """Return the size of fp32 tensors in bytes."""
    return FP32_SIZE * sum(math.prod(shape) for shape in shapes.values())


def largest_share(shapes: Mapping[str, Sequence[int]], world_size: int) -> int:
    """Return the most bytes that a process holds of fp32 tensors that are divided as train.shard_optimizer does."""
    ranks = sharding.partition({name: math.prod(shape) for name, shape in shapes.items()}, world_size)
    return max(bytes_of({name: shapes[name] for name in shapes if ranks[name] == rank}) for rank in range(world_size))


def bytes_of_sample(fields: Sequence[Field]) -> int:
    """Return the bytes of a training sample, as it is passed to the device."""
    return sum(math.prod(field.shape) * np.dtype(field.dtype).itemsize for field in fields)
