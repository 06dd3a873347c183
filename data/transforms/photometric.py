"""The photometric distortion of SSD (arXiv:1512.02325) as mmsegmentation computes it, on 8-bit RGB.

Every step truncates to bytes, and saturation and hue convert to HSV and back separately, so that equal draws give the
pixels of upstream's PhotoMetricDistortion (1.2.2). Upstream's images are BGR; HSV does not depend on the order.
"""

from typing import NamedTuple

import cv2
import numpy as np

BRIGHTNESS_DELTA = 32.0  # added: -32 to 32
CONTRAST_RANGE = (0.5, 1.5)  # factor of all values
SATURATION_RANGE = (0.5, 1.5)  # factor of S
HUE_DELTA = 18  # added to H, in OpenCV's steps of two degrees: -18 to 17, as in upstream
HUE_STEPS = 180  # of the full circle


class DistortionParams(NamedTuple):
    """Parameters of the distortion of one image; a step whose parameter is None is left out."""

    brightness: float | None
    contrast: float | None
    contrast_first: bool  # before saturation and hue, or after them
    saturation: float | None
    hue: int | None


def draw_params(rng: np.random.Generator) -> DistortionParams:
    """Draw every step with probability 1/2 and its parameter uniformly."""

    def maybe_uniform(low: float, high: float) -> float | None:
        return rng.uniform(low, high) if rng.random() < 0.5 else None

    brightness = maybe_uniform(-BRIGHTNESS_DELTA, BRIGHTNESS_DELTA)
    contrast = maybe_uniform(*CONTRAST_RANGE)
    saturation = maybe_uniform(*SATURATION_RANGE)
    hue = int(rng.integers(-HUE_DELTA, HUE_DELTA)) if rng.random() < 0.5 else None
    return DistortionParams(brightness, contrast, bool(rng.random() < 0.5), saturation, hue)


def distort(image: np.ndarray, params: DistortionParams) -> np.ndarray:
    """Apply a distortion.

    Args:
        image: uint8 RGB (H, W, 3); not modified.
        params: parameters of the steps.

    Returns:
        uint8 RGB (H, W, 3), the image itself if there is nothing to do.
    """
    values = np.arange(256)
    if params.brightness is not None:
        image = cv2.LUT(image, _lookup_table(1.0, params.brightness))
    if params.contrast is not None and params.contrast_first:
        image = cv2.LUT(image, _lookup_table(params.contrast, 0.0))
    if params.saturation is not None:
        image = _map_hsv(image, values, _lookup_table(params.saturation, 0.0))
    if params.hue is not None:
        image = _map_hsv(image, (values + params.hue) % HUE_STEPS, values)
    if params.contrast is not None and not params.contrast_first:
        image = cv2.LUT(image, _lookup_table(params.contrast, 0.0))
    return image


def _lookup_table(factor: float, offset: float) -> np.ndarray:
    """Return value * factor + offset for every byte, in float32, clipped and truncated: uint8 (256,)."""
    return np.clip(np.arange(256, dtype=np.float32) * factor + offset, 0, 255).astype(np.uint8)


def _map_hsv(image: np.ndarray, hue: np.ndarray, saturation: np.ndarray) -> np.ndarray:
    """Convert to HSV, apply lookup tables to H and S, and convert back."""
    table = np.stack([hue, saturation, np.arange(256)], axis=-1).astype(np.uint8)[None]
    return cv2.cvtColor(cv2.LUT(cv2.cvtColor(image, cv2.COLOR_RGB2HSV), table), cv2.COLOR_HSV2RGB)
