"""Geometry of a sample's image: which part of the stored pixels it shows, how large, and mirrored or not.

A geometry is drawn before any pixel is read. So every loader that carries it out gives the same image.
"""

import math
from typing import NamedTuple

import numpy as np

RESIZER = "cykooz_resizer"  # module of fast_image_resize, for a geometry that is `fast`
MAX_TRIES = 10  # of a random box, before its largest possible one is taken
Box = tuple[int, int, int, int]  # left, top, width, height
Size = tuple[int, int]  # width, height


class Geometry(NamedTuple):
    """Steps from an upright image to that of a sample, in the order of the attributes; None leaves a step out.

    Attributes:
        size: to which that part is resized, bilinear.
        antialias: see `resize` in data/transforms/pixels.py.
        window: part of the resized image that is kept.
        canvas: size to which the image is padded at the bottom and on the right, where it is smaller.
        fill: padding, a value per channel.
        fast: see `resize`; only with `antialias`.
    """

    box: Box | None = None
    size: Size | None = None
    antialias: bool = False
    window: Box | None = None
    flip: bool = False
    canvas: Size | None = None
    fill: tuple[int, ...] = (0, 0, 0)
    fast: bool = False


def short_side_size(size: Size, short_side: int) -> Size:
    """Return the size with its shorter side changed to `short_side` and the longer one in proportion, truncated."""
    width, height = size
    if width < height:
        return short_side, int(short_side * height / width)
    return int(short_side * width / height), short_side


def random_box(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float], rng: np.random.Generator
) -> Box:
    """Draw the box of a random resized crop.

    Args:
        scale: range of the box's fraction of the image area, drawn uniformly.
        ratio: range of the box's aspect ratio, width / height, drawn log-uniformly.

    Returns:
        The box; after ten draws that exceed the image, the largest central box of an allowed aspect ratio.
    """
    for _ in range(MAX_TRIES):
        area = width * height * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
            return left, top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = round(width / ratio[0])
    elif width / height > ratio[1]:
        w = round(height * ratio[1])
    return (width - w) // 2, (height - h) // 2, w, h
