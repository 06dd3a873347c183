"""Which part of a picture is kept in training: the random crop of Inception, as torchvision draws it."""

import math

import numpy as np

from data.transforms.clips import Box

TRIES = 10


def random_box(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float], rng: np.random.Generator
) -> Box:
    """A box of a share `scale` of the area, uniform, and of proportions width : height in `ratio`, log-uniform.

    Where ten draws in a row stick out of the picture, it is the largest central box of allowed proportions.
    """
    for _ in range(TRIES):
        area = width * height * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
        if 0 < w <= width and 0 < h <= height:
            top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
            return left, top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = int(round(width / ratio[0]))
    elif width / height > ratio[1]:
        w = int(round(height * ratio[1]))
    return (width - w) // 2, (height - h) // 2, w, h
