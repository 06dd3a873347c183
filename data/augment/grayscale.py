"""Gray images, as torchvision's RandomGrayscale."""

import numpy as np

from zoo.data.augment.common import policies
from zoo.data.augment.common.options import Probability
from zoo.data.augment.common.steps import Drawn, Target

KINDS = ("image", "clip", "scene", "face")


def draw(target: Target, rng: np.random.Generator, *, p: Probability = 0.1) -> Drawn | None:
    """Draw whether the image becomes gray."""
    return Drawn(policies.gray) if rng.random() < p else None
