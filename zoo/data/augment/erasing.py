"""Rectangles are replaced: random erasing (arXiv:1708.04896), and mmsegmentation's RandomCutOut.

torchvision's and timm's RandomErasing erase normalized values, this one bytes: `mean` is their 0, and `noise` their
normal noise in each pixel, rounded and clipped to bytes.
"""

import math
from functools import partial
from typing import Annotated, Literal

import numpy as np

from zoo.data.augment import ALL, Drawn, Target
from zoo.data.batch import IGNORE_INDEX
from zoo.data.fields import Fractions, Probability, Range, Ratios
from zoo.data.transforms.geometry import Box

KINDS = {"random_erasing": ("image", "clip", "face"), "random_cutout": ALL}
MAX_TRIES = 10
Corners = list[tuple[int, int]]  # left, top


def random_erasing(
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


def random_cutout(
    target: Target,
    rng: np.random.Generator,
    *,
    p: Probability = 0.5,
    holes: Annotated[tuple[int, int], Range(low=1, high=100)] = (1, 1),
    size: Annotated[tuple[float, float], Range(low=0, high=1, open_low=True, ordered=False)] = (0.25, 0.25),
    label: Literal["keep", "ignore"] = "keep",
) -> Drawn | None:
    """Draw whether to erase, the number of holes, and their upper left corners.

    A hole has a fraction `size` (width, height) of the image, and is cut off at the edges. Its pixels are the mean, and
    their labels are kept or ignored.
    """
    happens, count = rng.random() < p, int(rng.integers(holes[0], holes[1] + 1))
    corners = [(int(rng.integers(target.width)), int(rng.integers(target.height))) for _ in range(count)]
    if not happens:
        return None
    sides = (int(size[0] * target.width), int(size[1] * target.height))
    on_label = partial(cut, corners=corners, sides=sides, value=IGNORE_INDEX) if label == "ignore" else None
    return Drawn(partial(cut, corners=corners, sides=sides, value=target.mean_bytes), on_label)


def cut(image: np.ndarray, corners: Corners, sides: tuple[int, int], value: int | tuple[int, ...]) -> np.ndarray:
    """Return a copy of an image or mask with a value in all holes; sides: width and height."""
    image = image.copy()
    for left, top in corners:
        image[top : top + sides[1], left : left + sides[0]] = value
    return image
