"""Random erasing (arXiv:1708.04896): a rectangle is replaced, as by torchvision's and timm's RandomErasing.

They erase normalized values, this one bytes: `mean` is their 0, and `noise` their normal noise in each pixel, rounded
and clipped to bytes.
"""

import math
from functools import partial
from typing import Literal

import numpy as np

from zoo.data.augment.common.options import Fractions, Probability, Ratios
from zoo.data.augment.common.steps import Drawn, Target
from zoo.data.transforms.geometry import Box

KINDS = ("image", "clip", "face")
MAX_TRIES = 10


def draw(
    target: Target,
    rng: np.random.Generator,
    *,
    p: Probability = 0.25,
    scale: Fractions = (0.02, 1 / 3),
    ratio: Ratios = (0.3, 10 / 3),
    value: Literal["mean", "noise"] = "mean",
) -> Drawn | None:
    """Draw whether to erase, and a rectangle: its fraction of the image area, its aspect ratio and its position."""
    happens, box = rng.random() < p, draw_box(target.width, target.height, scale, ratio, rng)
    if not happens or box is None:
        return None
    content = np.array(target.mean_bytes, np.uint8)
    if value == "noise":
        noise = rng.standard_normal((box[3], box[2], 3)) * target.std + target.mean
        content = np.clip(np.rint(255 * noise), 0, 255).astype(np.uint8)
    return Drawn(partial(erase, box=box, content=content))


def draw_box(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float], rng: np.random.Generator
) -> Box | None:
    """Draw a rectangle within an image; None after ten that exceed it. ratio: height / width, log-uniform."""
    for _ in range(MAX_TRIES):
        area = width * height * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if h < height and w < width:
            top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
            return left, top, w, h
    return None


def erase(image: np.ndarray, box: Box, content: np.ndarray) -> np.ndarray:
    """Return a copy of an image with other pixels in a box."""
    left, top, width, height = box
    image = image.copy()
    image[top : top + height, left : left + width] = content
    return image
