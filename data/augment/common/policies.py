"""The operations of RandAugment and TrivialAugment, drawn by name and magnitude as torchvision (0.28) does."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from zoo.data.augment.common.steps import Pixels, Target

Interpolation = Literal["nearest", "bilinear"]
Fill = tuple[int, ...]
RESAMPLING = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}


def brightness(image: np.ndarray, factor: float) -> np.ndarray:
    """Blend with black; 1 leaves the image as it is, 0 is black."""
    return _map(image, lambda picture: ImageEnhance.Brightness(picture).enhance(factor))


def contrast(image: np.ndarray, factor: float) -> np.ndarray:
    """Blend with the mean gray level."""
    return _map(image, lambda picture: ImageEnhance.Contrast(picture).enhance(factor))


def saturation(image: np.ndarray, factor: float) -> np.ndarray:
    """Blend with the gray image."""
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
    return _map(image, lambda picture: picture.rotate(degrees, RESAMPLING[interpolation], fillcolor=fill))


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
    size, resampling = (image.shape[1], image.shape[0]), RESAMPLING[interpolation]
    return _map(
        image,
        lambda picture: picture.transform(size, Image.Transform.AFFINE, matrix, resampling, fillcolor=fill),
    )


def _map(image: np.ndarray, operation: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    return np.asarray(operation(Image.fromarray(image)))


BINS = 31  # magnitudes 0 ... 30
Padding = Literal["black", "mean"]


class Limits(NamedTuple):
    """Values of the operations at the largest magnitude."""

    shear: float  # slope
    translate_x: float  # pixels
    translate_y: float
    rotate: float  # degrees
    enhance: float  # added to or subtracted from a factor of 1
    posterize: int  # bits that are dropped


# Name -> the operation, the field of Limits that scales it, and whether its sign is drawn.
MOVES: dict[str, tuple[Callable[..., np.ndarray], str]] = {
    "shear_x": (shear_x, "shear"),
    "shear_y": (shear_y, "shear"),
    "translate_x": (translate_x, "translate_x"),
    "translate_y": (translate_y, "translate_y"),
    "rotate": (rotate, "rotate"),
}
ENHANCEMENTS = {
    "brightness": brightness,
    "color": saturation,
    "contrast": contrast,
    "sharpness": sharpness,
}
NAMES = ("identity", *MOVES, *ENHANCEMENTS, "posterize", "solarize", "autocontrast", "equalize")
SIGNED = (*MOVES, *ENHANCEMENTS)


def draw_operation(rng: np.random.Generator) -> str:
    """Draw one of NAMES."""
    return NAMES[rng.integers(len(NAMES))]


def draw_sign(name: str, rng: np.random.Generator) -> int:
    """Draw 1 or -1 for an operation that has two directions."""
    return -1 if name in SIGNED and rng.integers(2) else 1


def operation(name: str, magnitude: int, sign: int, limits: Limits, keys: dict[str, Any]) -> Pixels:
    """Return an operation with its parameters.

    Args:
        name: one of NAMES.
        magnitude: 0 ... BINS - 1.
        sign: of a signed operation.
        limits: at the largest magnitude.
        keys: `interpolation` and `fill` of the operations that move pixels.
    """
    share = magnitude / (BINS - 1)
    if name in MOVES:
        function, key = MOVES[name]
        value = _spaced(getattr(limits, key), magnitude) * sign
        return partial(_positional, function, int(value) if name.startswith("translate") else value, keys)
    if name in ENHANCEMENTS:
        return partial(_positional, ENHANCEMENTS[name], 1 + _spaced(limits.enhance, magnitude) * sign, {})
    if name == "posterize":
        return partial(_positional, posterize, 8 - round(share * limits.posterize), {})
    if name == "solarize":
        return partial(_positional, solarize, 255 - _spaced(255, magnitude), {})
    return {"autocontrast": autocontrast, "equalize": equalize}.get(name, _identity)


def move_keys(target: Target, interpolation: Interpolation, fill: Padding) -> dict[str, Any]:
    """Return the arguments of the operations that move pixels."""
    return {"interpolation": interpolation, "fill": target.mean_bytes if fill == "mean" else (0, 0, 0)}


def chain(functions: list[Pixels], image: np.ndarray) -> np.ndarray:
    """Carry out operations one after the other."""
    for function in functions:
        image = function(image)
    return image


def _spaced(largest: float, magnitude: int) -> float:
    """Return a value of BINS evenly spaced ones from 0 to the largest, in float32 as torch.linspace computes it.

    It goes from both ends to the middle, with one rounding of each value.
    """
    end, last = np.float32(largest), BINS - 1
    step = float(end / np.float32(last))
    value = step * magnitude if magnitude < BINS // 2 else float(end) - step * (last - magnitude)
    return float(np.float32(value))


def _positional(
    function: Callable[..., np.ndarray], value: float, keys: dict[str, Any], image: np.ndarray
) -> np.ndarray:
    return function(image, value, **keys)


def _identity(image: np.ndarray) -> np.ndarray:
    return image
