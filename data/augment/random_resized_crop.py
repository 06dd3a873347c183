"""The random resized crop of Inception training, as torchvision's RandomResizedCrop."""

import numpy as np

from zoo.data.augment.common.options import Fractions, Ratios
from zoo.data.augment.common.steps import Target
from zoo.data.transforms.geometry import Geometry, Size, random_box

KINDS = ("image", "clip")


def crop(
    size: Size,
    target: Target,
    rng: np.random.Generator,
    *,
    scale: Fractions = (0.08, 1.0),
    ratio: Ratios = (3 / 4, 4 / 3),
) -> Geometry:
    """Draw a box by its fraction of the image area and its aspect ratio, width / height."""
    return Geometry(random_box(*size, scale, ratio, rng), (target.width, target.height))
