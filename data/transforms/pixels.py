"""The steps of a geometry on the pixels of an image or a mask."""

import cv2
import numpy as np

from zoo.data.transforms.geometry import Box, Geometry, Size
from zoo.data.transforms.resize import resize


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
