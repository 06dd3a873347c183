"""Rectangles of fixed size at drawn places are erased, as by mmsegmentation's RandomCutOut."""

from functools import partial
from typing import Annotated, Literal

import numpy as np

from zoo.data.augment.common.options import Probability, Range
from zoo.data.augment.common.steps import Drawn, Target
from zoo.data.formats.masks import IGNORE_INDEX

KINDS = ("image", "clip", "scene", "face")
Corners = list[tuple[int, int]]  # left, top


def draw(
    target: Target,
    rng: np.random.Generator,
    *,
    p: Probability = 0.5,
    holes: Annotated[tuple[int, int], Range(1, 100)] = (1, 1),
    size: Annotated[tuple[float, float], Range(0, 1, above=True, ordered=False)] = (0.25, 0.25),
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
