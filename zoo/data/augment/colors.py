"""Augmentations of colors, and blur.

Jitter, gray and blur are torchvision's ColorJitter, RandomGrayscale and GaussianBlur on Pillow images. The photometric
distortion is that of SSD (arXiv:1512.02325) as mmsegmentation's PhotoMetricDistortion (1.2.2) computes it: every step
truncates to bytes, and saturation and hue convert to HSV and back separately. Upstream's images are BGR; HSV does not
depend on the order.
"""

from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from zoo.data.augment import ALL, Drawn, Target, operations
from zoo.data.extras import cv2
from zoo.data.fields import Probability, Range

KINDS = {"color_jitter": ALL, "grayscale": ALL, "gaussian_blur": ALL, "photometric_distortion": ALL}
Change = Annotated[float, Range(low=0, high=10)]
OPERATIONS = (operations.brightness, operations.contrast, operations.saturation, operations.hue)
BRIGHTNESS_DELTA = 32.0  # added: -32 to 32
CONTRAST_RANGE = (0.5, 1.5)  # factor of all values
SATURATION_RANGE = (0.5, 1.5)  # factor of S
HUE_DELTA = 18  # added to H, in OpenCV's steps of two degrees: -18 to 17, as in upstream
HUE_STEPS = 180  # of the full circle


def color_jitter(
    target: Target,
    rng: np.random.Generator,
    *,
    brightness: Change = 0.0,
    contrast: Change = 0.0,
    saturation: Change = 0.0,
    hue: Annotated[float, Range(low=0, high=0.5)] = 0.0,
    p: Probability = 1.0,
) -> Drawn | None:
    """Draw factors from [max(0, 1 - x), 1 + x] and a hue from [-x, x]; a change of 0 leaves a step out."""
    happens, order = rng.random() < p, rng.permutation(len(OPERATIONS))
    factors = [rng.uniform(max(0.0, 1 - change), 1 + change) for change in (brightness, contrast, saturation)]
    values = [*factors, rng.uniform(-hue, hue)]
    changes = (brightness, contrast, saturation, hue)
    steps = [(OPERATIONS[number], values[number]) for number in order if changes[number]]
    return Drawn(partial(jitter, steps)) if happens and steps else None


def jitter(steps: list, image: np.ndarray) -> np.ndarray:
    """Carry out operations, each with its value."""
    for function, value in steps:
        image = function(image, value)
    return image


def grayscale(target: Target, rng: np.random.Generator, *, p: Probability = 0.1) -> Drawn | None:
    """Draw whether the image becomes gray."""
    return Drawn(operations.gray) if rng.random() < p else None


def gaussian_blur(
    target: Target,
    rng: np.random.Generator,
    *,
    kernel: Annotated[int, Range(low=3, high=99, odd=True)] = 5,
    sigma: Annotated[tuple[float, float], Range(low=0, high=100, open_low=True)] = (0.1, 2.0),
    p: Probability = 0.5,
) -> Drawn | None:
    """Draw whether to blur, and the standard deviation in pixels; `kernel` is the side of the filter.

    OpenCV computes in fixed point. Beyond its edges, the image is mirrored about the outermost pixels.
    """
    happens, width = rng.random() < p, rng.uniform(*sigma)
    return Drawn(partial(cv2.GaussianBlur, ksize=(kernel, kernel), sigmaX=width)) if happens else None


def photometric_distortion(target: Target, rng: np.random.Generator) -> Drawn:
    """Draw the distortion of SSD: what data.photometric does to scenes."""
    return Drawn(partial(distort, params=draw_params(rng)))


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
