"""Augmentations that move pixels: crops, flips, and rotation as mmsegmentation's RandomRotate."""

from functools import partial
from typing import Annotated, Literal

import numpy as np

from zoo.data.augment import ALL, Drawn, Target
from zoo.data.batch import IGNORE_INDEX
from zoo.data.extras import cv2
from zoo.data.fields import Fractions, Probability, Range, Ratios, Shares
from zoo.data.transforms import pixels
from zoo.data.transforms.clips import multi_scale_box
from zoo.data.transforms.geometry import Geometry, Size, random_box

KINDS = {
    "random_resized_crop": ("image", "clip"),
    "multi_scale_crop": ("clip",),
    "horizontal_flip": ALL,
    "vertical_flip": ("image", "clip", "scene"),
    "random_rotate": ("image", "clip", "scene"),
}


def random_resized_crop(
    size: Size,
    target: Target,
    rng: np.random.Generator,
    *,
    scale: Fractions = (0.08, 1.0),
    ratio: Ratios = (3 / 4, 4 / 3),
) -> Geometry:
    """Draw a box as torchvision: its fraction of the image area and its aspect ratio, width / height."""
    return Geometry(random_box(*size, scale, ratio, rng), (target.width, target.height))


def multi_scale_crop(
    size: Size,
    target: Target,
    rng: np.random.Generator,
    *,
    scales: Shares = (1.0, 0.875, 0.75, 0.66),
) -> Geometry:
    """Draw the sides of a box from neighboring scales of the shorter side, and one of 13 places."""
    return Geometry(multi_scale_box(*size, target.width, scales, rng), (target.width, target.height))


def horizontal_flip(target: Target, rng: np.random.Generator, *, p: Probability = 0.5) -> Drawn | None:
    """Draw whether the image is mirrored."""
    return Drawn(pixels.flip, pixels.flip, mirrored=True) if rng.random() < p else None


def vertical_flip(target: Target, rng: np.random.Generator, *, p: Probability = 0.5) -> Drawn | None:
    """Draw whether the image is turned over."""
    return Drawn(_turn, _turn) if rng.random() < p else None


def _turn(image: np.ndarray) -> np.ndarray:
    return cv2.flip(image, 0)


def random_rotate(
    target: Target,
    rng: np.random.Generator,
    *,
    p: Probability = 0.5,
    degrees: Annotated[tuple[float, float], Range(low=-180, high=180)] = (-10.0, 10.0),
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
