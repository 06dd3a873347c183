"""Rotation about the center by a drawn angle, of an image and its mask, as mmsegmentation's RandomRotate."""

from functools import partial
from typing import Annotated, Literal

import cv2
import numpy as np

from zoo.data.augment.common.options import Probability, Range
from zoo.data.augment.common.steps import Drawn, Target
from zoo.data.formats.masks import IGNORE_INDEX

KINDS = ("image", "clip", "scene")


def draw(
    target: Target,
    rng: np.random.Generator,
    *,
    p: Probability = 0.5,
    degrees: Annotated[tuple[float, float], Range(-180, 180)] = (-10.0, 10.0),
    fill: Literal["black", "mean"] = "mean",
) -> Drawn | None:
    """Draw whether to rotate, and the angle, clockwise. Uncovered pixels get `fill` and no label."""
    happens, angle = rng.random() < p, rng.uniform(*degrees)
    if not happens:
        return None
    padding = target.mean_bytes if fill == "mean" else (0, 0, 0)
    on_image = partial(rotate, degrees=angle, interpolation=cv2.INTER_LINEAR, fill=padding)
    return Drawn(on_image, partial(rotate, degrees=angle, interpolation=cv2.INTER_NEAREST, fill=(IGNORE_INDEX,)))


def rotate(image: np.ndarray, degrees: float, interpolation: int, fill: tuple[int, ...]) -> np.ndarray:
    """Rotate an image or mask clockwise."""
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D(((width - 1) * 0.5, (height - 1) * 0.5), -degrees, 1.0)
    return cv2.warpAffine(image, matrix, (width, height), flags=interpolation, borderValue=fill)
