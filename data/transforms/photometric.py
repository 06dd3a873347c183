"""The photometric distortion of SSD (arXiv:1512.02325) as mmsegmentation computes it, on 8-bit RGB.

Every step rounds down to bytes, and saturation and hue go to HSV and back each on their own, so that the pixels are
upstream's (1.2.2, PhotoMetricDistortion) for the same draws. Upstream keeps BGR; HSV does not depend on that order.
"""

from typing import NamedTuple

import cv2
import numpy as np

BRIGHTNESS = 32.0  # added: -32 to 32
CONTRAST = (0.5, 1.5)  # factor of all values
SATURATION = (0.5, 1.5)  # factor of S
HUE = 18  # added to H, in OpenCV's steps of two degrees: -18 to 17, as upstream draws it
HUES = 180  # steps of the whole circle


class Draw(NamedTuple):
    """What happens to one picture; None: that step is left out."""

    brightness: float | None
    contrast: float | None
    contrast_first: bool  # before saturation and hue, or after them
    saturation: float | None
    hue: int | None


def draw(rng: np.random.Generator) -> Draw:
    """Each step with probability 1/2, its amount uniform."""

    def maybe(low: float, high: float) -> float | None:
        return rng.uniform(low, high) if rng.random() < 0.5 else None

    brightness, contrast, saturation = maybe(-BRIGHTNESS, BRIGHTNESS), maybe(*CONTRAST), maybe(*SATURATION)
    hue = int(rng.integers(-HUE, HUE)) if rng.random() < 0.5 else None
    return Draw(brightness, contrast, bool(rng.random() < 0.5), saturation, hue)


def distort(image: np.ndarray, how: Draw) -> np.ndarray:
    """The picture, uint8 RGB (H, W, 3), after these steps; the given array stays as it is."""
    values = np.arange(256)
    if how.brightness is not None:
        image = cv2.LUT(image, _bytes(1.0, how.brightness))
    if how.contrast is not None and how.contrast_first:
        image = cv2.LUT(image, _bytes(how.contrast, 0.0))
    if how.saturation is not None:
        image = _in_hsv(image, values, _bytes(how.saturation, 0.0))
    if how.hue is not None:
        image = _in_hsv(image, (values + how.hue) % HUES, values)
    if how.contrast is not None and not how.contrast_first:
        image = cv2.LUT(image, _bytes(how.contrast, 0.0))
    return image


def _bytes(factor: float, offset: float) -> np.ndarray:
    """value * factor + offset of every byte, in float32, clipped, and rounded down: uint8 (256,)."""
    return np.clip(np.arange(256, dtype=np.float32) * factor + offset, 0, 255).astype(np.uint8)


def _in_hsv(image: np.ndarray, hue: np.ndarray, saturation: np.ndarray) -> np.ndarray:
    """To HSV, through a table for H and one for S, and back."""
    table = np.stack([hue, saturation, np.arange(256)], axis=-1).astype(np.uint8)[None]
    return cv2.cvtColor(cv2.LUT(cv2.cvtColor(image, cv2.COLOR_RGB2HSV), table), cv2.COLOR_HSV2RGB)
