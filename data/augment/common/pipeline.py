"""The augmentations of a split, drawn and carried out on its samples."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from zoo.data import augment
from zoo.data.augment.common.steps import Drawn, Steps, Target
from zoo.data.transforms.geometry import Geometry, Size

DrawStep = Callable[[Target, np.random.Generator], Drawn | None]


class Pipeline:
    """The augmentations of data.augment. It keeps no state between samples.

    Attributes:
        crop: (size of a stored image, target, generator) -> Geometry; None for the data set's own crop.
        is_geometric: whether a geometry is all that happens to images, so that any loader can decode them.
        note: message for the user, which says what replaces the standard set.
    """

    def __init__(self, steps: Steps, loader: str):
        functions: list[Any] = []
        for step in steps.steps:
            module = augment.load(step.name)
            functions.append(partial(module.crop if step.is_crop else module.draw, **dict(step.options)))
        has_crop = bool(steps.steps) and steps.steps[0].is_crop
        self.crop: Callable[[Size, Target, np.random.Generator], Geometry] | None = functions[0] if has_crop else None
        self._draws: list[DrawStep] = functions[has_crop:]
        self.is_geometric = [step.name for step in steps.steps[has_crop:]] in ([], ["horizontal_flip"])
        names = [str(step) for step in steps.steps]
        self.note = f"data.augment: in place of the standard augmentations: {', '.join(names) or 'none'}"
        if loader == "dali" and not self.is_geometric:
            self.note += "; the reference loader reads the training samples, since DALI does not augment"

    def draw(self, target: Target, rng: np.random.Generator) -> tuple[bool, list[Drawn]]:
        """Draw the augmentations that follow the crop.

        Returns:
            Whether the cropped image is mirrored first, and what else happens to it.
        """
        drawn = [step for step in (draw(target, rng) for draw in self._draws) if step]
        if drawn and drawn[0].mirrored:
            return True, drawn[1:]
        return False, drawn


def build(settings: Any) -> Pipeline | None:
    """Return the pipeline of a data set's settings, None for the standard set."""
    return None if settings.augment is None else Pipeline(settings.augment, settings.loader)


def on_image(image: np.ndarray, drawn: Iterable[Drawn]) -> np.ndarray:
    """Carry out draws on an image, uint8 RGB (H, W, 3)."""
    for step in drawn:
        image = step.image(image)
    return image


def on_frames(frames: np.ndarray, drawn: Sequence[Drawn]) -> np.ndarray:
    """Carry out the same draws on every frame of a clip, uint8 (T, H, W, 3)."""
    return np.stack([on_image(frame, drawn) for frame in frames]) if drawn else frames


def on_label(label: np.ndarray, drawn: Iterable[Drawn]) -> np.ndarray:
    """Carry out draws on the mask of a scene, uint8 (H, W)."""
    for step in drawn:
        label = step.label(label) if step.label else label
    return label
