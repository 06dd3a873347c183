"""Brightness, contrast, saturation and hue in a drawn order, as torchvision's ColorJitter on Pillow images."""

from functools import partial
from typing import Annotated

import numpy as np

from zoo.data.augment.common import policies
from zoo.data.augment.common.options import Probability, Range
from zoo.data.augment.common.steps import Drawn, Target

KINDS = ("image", "clip", "scene", "face")
Change = Annotated[float, Range(0, 10)]
OPERATIONS = (policies.brightness, policies.contrast, policies.saturation, policies.hue)


def draw(
    target: Target,
    rng: np.random.Generator,
    *,
    brightness: Change = 0.0,
    contrast: Change = 0.0,
    saturation: Change = 0.0,
    hue: Annotated[float, Range(0, 0.5)] = 0.0,
    p: Probability = 1.0,
) -> Drawn | None:
    """Draw factors from [max(0, 1 - x), 1 + x] and a hue from [-x, x]; a change of 0 leaves a step out."""
    happens, order = rng.random() < p, rng.permutation(len(OPERATIONS))
    factors = [rng.uniform(max(0.0, 1 - change), 1 + change) for change in (brightness, contrast, saturation)]
    values = [*factors, rng.uniform(-hue, hue)]
    changes = (brightness, contrast, saturation, hue)
    steps = [(OPERATIONS[number], values[number]) for number in order if changes[number]]
    return Drawn(partial(jitter, steps)) if happens and steps else None


def jitter(steps: list, image: np.ndarray) -> np.ndarray:
    """Carry out policies, each with its value."""
    for function, value in steps:
        image = function(image, value)
    return image
