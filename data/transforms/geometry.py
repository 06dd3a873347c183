"""Geometry of a sample's image: which part of the stored pixels it shows, how large, and mirrored or not.

A geometry is drawn before any pixel is read. So every loader that carries it out gives the same image.
"""

from typing import NamedTuple

import cv2
import numpy as np

from data.transforms.clips import Box
from data.transforms.resize import resize

Size = tuple[int, int]  # width, height


class Geometry(NamedTuple):
    """Steps from an upright image to that of a sample, in the order of the attributes; None leaves a step out.

    Attributes:
        box: part of the image that is kept.
        size: to which that part is resized, bilinear.
        antialias: see data/transforms/resize.py.
        window: part of the resized image that is kept.
        flip: mirror horizontally.
        canvas: size to which the image is padded at the bottom and on the right, where it is smaller.
        fill: padding, a value per channel.
    """

    box: Box | None = None
    size: Size | None = None
    antialias: bool = False
    window: Box | None = None
    flip: bool = False
    canvas: Size | None = None
    fill: tuple[int, ...] = (0, 0, 0)


def apply(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Carry out all steps on an image, uint8 (H, W, 3) -> uint8 (H', W', 3), contiguous."""
    return finish(scale(image, geometry), geometry)


def scale(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Carry out the steps up to the resize."""
    if geometry.box:
        image = crop(image, geometry.box)
    if geometry.size and geometry.size != image.shape[1::-1]:
        image = resize(image, *geometry.size, geometry.antialias)
    return image


def finish(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Carry out the steps after the resize."""
    if geometry.window:
        image = crop(image, geometry.window)
    if geometry.flip:
        image = flip(image)
    if geometry.canvas:
        image = pad(image, geometry.canvas, geometry.fill)
    return np.ascontiguousarray(image)


def crop(image: np.ndarray, box: Box) -> np.ndarray:
    """Return a view of a box of an image or mask (H, W, ...)."""
    left, top, width, height = box
    return image[top : top + height, left : left + width]


def flip(image: np.ndarray) -> np.ndarray:
    """Mirror an image or mask (H, W, ...) horizontally; much faster than a copy of image[:, ::-1]."""
    return cv2.flip(image, 1)


def pad(image: np.ndarray, canvas: Size, fill: tuple[int, ...]) -> np.ndarray:
    """Return a copy of at least the size of the canvas, padded at the bottom and on the right."""
    right, bottom = (max(side - current, 0) for side, current in zip(canvas, image.shape[1::-1]))
    return cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_CONSTANT, value=fill)


def short_side_size(size: Size, short_side: int) -> Size:
    """Return the size with its shorter side changed to `short_side` and the longer one in proportion, truncated."""
    width, height = size
    if width < height:
        return short_side, int(short_side * height / width)
    return int(short_side * width / height), short_side
