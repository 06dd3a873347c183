"""What an augmentation gets, and what it gives."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Pixels = Callable[[np.ndarray], np.ndarray]


class Target(NamedTuple):
    """The images of a sample when they are augmented: their size in pixels, and their normalization in [0, 1]."""

    width: int
    height: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def mean_bytes(self) -> tuple[int, ...]:
        """The bytes that come closest to 0 after the normalization."""
        return tuple(round(255 * value) for value in self.mean)


class Drawn(NamedTuple):
    """One draw of an augmentation.

    Attributes:
        image: uint8 RGB (H, W, 3), not modified, -> the same shape; called for every frame of a clip.
        label: the same for the mask of a scene, uint8 (H, W); None leaves it as it is.
        mirrored: whether it mirrors horizontally and does nothing else.
    """

    image: Pixels
    label: Pixels | None = None
    mirrored: bool = False
