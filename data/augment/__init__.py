"""Augmentations of training samples: one file each, named in a recipe's data.augment.

A module data/augment/<name>.py has KINDS, the kinds of samples that it suits (image, clip, scene, face), and one
function, whose keyword arguments are its options (data/augment/common/options.py):

- `draw(target, rng, *, ...)` -> Drawn or None: what happens to the pixels of one sample, or None for nothing. All
  frames of a clip get the same, and the mask of a scene what `Drawn.label` says.
- `crop(size, target, rng, *, ...)` -> Geometry: the part of a stored image that becomes the sample, in place of the
  data set's own crop. A list has one crop at most, in the first place.

It takes all its randomness from `rng`, and draws before any pixel is read.
"""

import importlib
from pathlib import Path
from types import ModuleType

KINDS = ("image", "clip", "scene", "face")


def names(kind: str | None = None) -> list[str]:
    """Return the sorted names of all augmentations, or of those that suit a kind of samples."""
    found = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    return [name for name in found if kind is None or kind in load(name).KINDS]


def load(name: str) -> ModuleType:
    """Import the module of an augmentation."""
    return importlib.import_module(f"zoo.data.augment.{name}")
