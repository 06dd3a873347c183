"""Augmentations of training samples, which a recipe names in data.augment: functions of the modules of this folder.

KINDS of a module names its augmentations and the kinds of samples that each suits. The keyword arguments of such a
function are its options (steps.py). There are two signatures:

- `name(target, rng, *, ...)` -> Drawn or None: what happens to the pixels of one sample, or None for nothing. All
  frames of a clip get the same, and the mask of a scene what `Drawn.label` says.
- `name(size, target, rng, *, ...)` -> Geometry: the part of a stored image that becomes the sample, in place of the
  data set's own crop. A list has one crop at most, in the first place.

It takes all its randomness from `rng`, and draws before any pixel is read.

Other packages add augmentations by entry points of the group `zoo.augmentations` (zoo/data/plugins.py), which name such
a module.
"""

import importlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.data import plugins
from zoo.data.errors import UserError

GROUP = "zoo.augmentations"
ALL = ("image", "clip", "scene", "face")
Pixels = Callable[[np.ndarray], np.ndarray]


class Target(NamedTuple):
    """The images of a sample when they are augmented: their size in pixels, and their normalization in [0, 1]."""

    width: int
    height: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def mean_bytes(self) -> tuple[int, ...]:
        """The bytes that come closest to 0 after the normalization."""
        return tuple(round(255 * value) for value in self.mean)


class Drawn(NamedTuple):
    """One draw of an augmentation.

    Attributes:
        image: uint8 RGB (H, W, 3), not modified, -> the same shape; called for every frame of a clip.
        label: the same for the mask of a scene, uint8 (H, W); None leaves it as it is.
        mirrored: whether it mirrors horizontally and does nothing else.
    """

    image: Pixels
    label: Pixels | None = None
    mirrored: bool = False


class Augmentation(NamedTuple):
    """A function of a module of this folder, and the kinds of samples that it suits."""

    function: Callable[..., Any]
    kinds: tuple[str, ...]

    @property
    def is_crop(self) -> bool:
        return next(iter(inspect.signature(self.function).parameters)) == "size"


@cache
def catalog() -> dict[str, Augmentation]:
    """Return the augmentations of this folder by name, in alphabetical order."""
    found = {}
    for path in Path(__file__).parent.glob("[!_]*.py"):
        module = importlib.import_module(f"{__name__}.{path.stem}")
        for name, kinds in getattr(module, "KINDS", {}).items():
            found[name] = Augmentation(getattr(module, name), kinds)
    return dict(sorted(found.items()))


def names() -> list[str]:
    return plugins.names(GROUP, catalog())


def find(name: str) -> Augmentation:
    if name in catalog():
        return catalog()[name]
    module = plugins.load("augmentation", GROUP, {}, name, "KINDS", name)
    if name not in module.KINDS:
        raise UserError(f"{module.__file__}: KINDS has no {name}, whose kinds of samples it names")
    return Augmentation(getattr(module, name), module.KINDS[name])
