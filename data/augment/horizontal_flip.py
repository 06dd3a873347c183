"""Mirror images: left and right change places."""

import numpy as np

from data.augment.common.drawn import Drawn, Target
from data.augment.common.options import Probability
from data.transforms import pixels

KINDS = ("image", "clip", "scene", "face")


def draw(target: Target, rng: np.random.Generator, *, p: Probability = 0.5) -> Drawn | None:
    """Draw whether the image is mirrored."""
    return Drawn(pixels.flip, pixels.flip, mirrored=True) if rng.random() < p else None
