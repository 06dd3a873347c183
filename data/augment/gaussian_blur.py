"""Blur by a Gaussian of drawn width, as torchvision's GaussianBlur; OpenCV computes it in fixed point."""

from typing import Annotated

import cv2
import numpy as np

from zoo.data.augment.common.options import Probability, Range
from zoo.data.augment.common.steps import Drawn, Target

KINDS = ("image", "clip", "scene", "face")


def draw(
    target: Target,
    rng: np.random.Generator,
    *,
    kernel: Annotated[int, Range(3, 99, odd=True)] = 5,
    sigma: Annotated[tuple[float, float], Range(0, 100, above=True)] = (0.1, 2.0),
    p: Probability = 0.5,
) -> Drawn | None:
    """Draw whether the image is blurred, and the standard deviation in pixels; `kernel` is the side of the filter."""
    happens, width = rng.random() < p, rng.uniform(*sigma)
    return Drawn(lambda image: blur(image, kernel, width)) if happens else None


def blur(image: np.ndarray, kernel: int, sigma: float) -> np.ndarray:
    """Blur an image; beyond its edges it is mirrored about the outermost pixels."""
    return cv2.GaussianBlur(image, (kernel, kernel), sigma, borderType=cv2.BORDER_REFLECT_101)
