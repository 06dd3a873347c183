"""Gray images, as torchvision's RandomGrayscale."""

import numpy as np

from zoo.data.augment.common import operations
from zoo.data.augment.common.drawn import Drawn, Target
from zoo.data.augment.common.options import Probability

KINDS = ("image", "clip", "scene", "face")


def draw(target: Target, rng: np.random.Generator, *, p: Probability = 0.1) -> Drawn | None:
    """Draw whether the image becomes gray."""
    return Drawn(operations.gray) if rng.random() < p else None
