"""Deterministic operations on 8-bit RGB images, (H, W, 3) -> (H, W, 3): those of Pillow, as torchvision uses it.

Equal parameters give the pixels of torchvision's transforms of Pillow images (0.28).
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from zoo.data.extras import Image, ImageEnhance, ImageOps

Interpolation = Literal["nearest", "bilinear"]
Fill = tuple[int, ...]


def brightness(image: np.ndarray, factor: float) -> np.ndarray:
    """Blend with black; 1 leaves the image as it is, 0 is black."""
    return _map(image, lambda picture: ImageEnhance.Brightness(picture).enhance(factor))


def contrast(image: np.ndarray, factor: float) -> np.ndarray:
    """Blend with the mean gray level."""
    return _map(image, lambda picture: ImageEnhance.Contrast(picture).enhance(factor))


def saturation(image: np.ndarray, factor: float) -> np.ndarray:
    return _map(image, lambda picture: ImageEnhance.Color(picture).enhance(factor))


def sharpness(image: np.ndarray, factor: float) -> np.ndarray:
    """Blend with a smoothed image."""
    return _map(image, lambda picture: ImageEnhance.Sharpness(picture).enhance(factor))


def hue(image: np.ndarray, shift: float) -> np.ndarray:
    """Turn the hue by a fraction of the circle, in Pillow's HSV of 8 bits, truncated to its steps."""
    hsv = np.array(Image.fromarray(image).convert("HSV"))
    hsv[..., 0] += np.array(int(shift * 255)).astype(np.uint8)  # wraps around
    return np.asarray(Image.fromarray(hsv, "HSV").convert("RGB"))


def gray(image: np.ndarray) -> np.ndarray:
    """Return the gray image, as three equal channels."""
    return np.repeat(np.asarray(Image.fromarray(image).convert("L"))[..., None], 3, axis=-1)


def posterize(image: np.ndarray, bits: int) -> np.ndarray:
    """Keep the upper bits of every value."""
    return _map(image, lambda picture: ImageOps.posterize(picture, bits))


def solarize(image: np.ndarray, threshold: float) -> np.ndarray:
    """Invert the values from a threshold on."""
    return _map(image, lambda picture: ImageOps.solarize(picture, threshold))  # type: ignore[arg-type]


def autocontrast(image: np.ndarray) -> np.ndarray:
    """Stretch every channel to 0 ... 255."""
    return _map(image, ImageOps.autocontrast)


def equalize(image: np.ndarray) -> np.ndarray:
    """Equalize the histogram of every channel."""
    return _map(image, ImageOps.equalize)


def rotate(image: np.ndarray, degrees: float, interpolation: Interpolation, fill: Fill) -> np.ndarray:
    """Rotate about the center, counter-clockwise."""
    return _map(image, lambda picture: picture.rotate(degrees, _resampling(interpolation), fillcolor=fill))


def shear_x(image: np.ndarray, slope: float, interpolation: Interpolation, fill: Fill) -> np.ndarray:
    """Move every row by slope pixels more than the one above it, to the left."""
    return _affine(image, (1, slope, 0, 0, 1, 0), interpolation, fill)


def shear_y(image: np.ndarray, slope: float, interpolation: Interpolation, fill: Fill) -> np.ndarray:
    """Move every column by slope pixels more than the one on its left, upwards."""
    return _affine(image, (1, 0, 0, slope, 1, 0), interpolation, fill)


def translate_x(image: np.ndarray, pixels: int, interpolation: Interpolation, fill: Fill) -> np.ndarray:
    """Move the image to the right."""
    return _affine(image, (1, 0, -pixels, 0, 1, 0), interpolation, fill)


def translate_y(image: np.ndarray, pixels: int, interpolation: Interpolation, fill: Fill) -> np.ndarray:
    """Move the image down."""
    return _affine(image, (1, 0, 0, 0, 1, -pixels), interpolation, fill)


def _affine(image: np.ndarray, matrix: tuple[float, ...], interpolation: Interpolation, fill: Fill) -> np.ndarray:
    """Transform by a matrix that takes pixels of the result to those of the image."""
    size, resampling = (image.shape[1], image.shape[0]), _resampling(interpolation)
    return _map(
        image,
        lambda picture: picture.transform(size, Image.Transform.AFFINE, matrix, resampling, fillcolor=fill),
    )


def _resampling(interpolation: Interpolation) -> "Image.Resampling":
    return Image.Resampling[interpolation.upper()]


def _map(image: np.ndarray, operation: Callable[["Image.Image"], "Image.Image"]) -> np.ndarray:
    return np.asarray(operation(Image.fromarray(image)))
