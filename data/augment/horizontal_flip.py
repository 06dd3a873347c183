"""Mirror images: left and right change places."""

import numpy as np

from zoo.data.augment.common.options import Probability
from zoo.data.augment.common.steps import Drawn, Target
from zoo.data.transforms import pixels

KINDS = ("image", "clip", "scene", "face")


def draw(target: Target, rng: np.random.Generator, *, p: Probability = 0.5) -> Drawn | None:
    """Draw whether the image is mirrored."""
    return Drawn(pixels.flip, pixels.flip, mirrored=True) if rng.random() < p else None
