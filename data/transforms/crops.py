"""The random resized crop of Inception training, as drawn by torchvision."""

import math

import numpy as np

from zoo.data.transforms.geometry import Box

MAX_TRIES = 10


def random_box(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float], rng: np.random.Generator
) -> Box:
    """Draw the box of a random resized crop.

    Args:
        width: of the image.
        height: of the image.
        scale: range of the box's fraction of the image area, drawn uniformly.
        ratio: range of the box's aspect ratio, width / height, drawn log-uniformly.
        rng: source of the draws.

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
