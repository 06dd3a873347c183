"""Images of a sample that have been read and drawn, and not decoded yet: what a loader but the reference gets."""

from typing import NamedTuple

import numpy as np

from zoo.data.transforms.geometry import Geometry


class Pending(NamedTuple):
    """The encoded images of an array, all of which get the same geometry.

    Attributes:
        files: ordinary JPEG files, or PNG files of 8-bit RGB, stored upright.
        geometry: from an image to its part of the array.
        stacked: whether the array has an axis for the files in front; otherwise there is one file.
    """

    files: tuple[bytes, ...]
    geometry: Geometry
    stacked: bool = False


PlannedSample = dict[str, np.ndarray | Pending]
