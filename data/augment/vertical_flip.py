"""Images upside down: top and bottom change places."""

import cv2
import numpy as np

from zoo.data.augment.common.options import Probability
from zoo.data.augment.common.steps import Drawn, Target

KINDS = ("image", "clip", "scene")


def draw(target: Target, rng: np.random.Generator, *, p: Probability = 0.5) -> Drawn | None:
    """Draw whether the image is turned over."""
    return Drawn(_flip, _flip) if rng.random() < p else None


def _flip(image: np.ndarray) -> np.ndarray:
    return cv2.flip(image, 0)
