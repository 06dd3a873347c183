"""Which sample comes when, and with what random numbers: pure functions of (seed, position).

A position counts the training samples of the whole run, over all epochs and ranks: sample `position % size` of epoch
`position // size`. Nothing here knows batches, ranks or what was read before, so a resume is a slice, and one rank or
eight see the same sequence.
"""

import zlib
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=4)  # a stream crosses at most one epoch border at a time, train and bench side by side
def permutation(seed: int, epoch: int, size: int) -> np.ndarray:
    """The order of one epoch: int64 (size,), every index once."""
    return generator(seed, "order", epoch).permutation(size)


def locate(seed: int, size: int, position: int) -> tuple[int, int]:
    """(epoch from 0, sample index) at a position of the run."""
    epoch, offset = divmod(position, size)
    return epoch, int(permutation(seed, epoch, size)[offset])


def generator(seed: int, purpose: str, number: int) -> np.random.Generator:
    """An independent generator for each (seed, purpose, number)."""
    return np.random.default_rng((seed, zlib.crc32(purpose.encode()), number))
