"""Files that are missing, or too small to be what they should be: empty, cut off, or an error page of a download."""

from typing import NamedTuple

import numpy as np

from zoo.data.audit.copies import spread
from zoo.data.audit.inventory import Inventory

FILES = 20_000  # of a split whose sizes are asked for, unless `deep`
TINY = 64  # bytes; no image or video is smaller
SMALL = 1024  # bytes; suspicious where the others are large ...
LARGE = 16384  # ... in the median


class Sizes(NamedTuple):
    """Names of files that are missing, names of those that are tiny with their bytes, and how many were looked at."""

    missing: list[str]
    tiny: list[str]
    looked_at: int


def check(inventory: Inventory, deep: bool = False) -> Sizes:
    """Ask for the sizes of the files of a split, of all with `deep`."""
    if inventory.size is None or not inventory.samples:
        return Sizes([], [], 0)
    indices = spread(inventory.samples, inventory.samples if deep else FILES)
    sizes = np.array([inventory.size(index) for index in indices])
    limit = SMALL if np.median(sizes) >= LARGE else TINY
    missing = [inventory.name(indices[place]) for place in np.flatnonzero(sizes < 0)]
    tiny = [
        f"{inventory.name(indices[place])} ({sizes[place]} bytes)"
        for place in np.flatnonzero((sizes >= 0) & (sizes < limit))
    ]
    return Sizes(missing, tiny, len(indices))
