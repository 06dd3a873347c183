"""Sample order and random numbers of a run: pure functions of (seed, position).

A position counts the training samples of the whole run, over all epochs and ranks: position p is sample `p % size` of
epoch `p // size`. Nothing here depends on batches, ranks or what was read before. So a resumed run starts at any
position without a replay, and one rank or eight read the same sequence.
"""

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from zoo.data import seeding


@lru_cache(maxsize=4)  # a stream needs two epochs at most, and a benchmark reads a second stream
def permutation(seed: int, epoch: int, size: int) -> np.ndarray:
    """Return the sample order of one epoch: int64 (size,), every index once."""
    return generator(seed, "order", epoch).permutation(size)


def locate(seed: int, size: int, position: int) -> tuple[int, int]:
    """Return the epoch (from 0) and the sample index at a position of the run."""
    epoch, offset = divmod(position, size)
    return epoch, int(permutation(seed, epoch, size)[offset])


def generator(seed: int, purpose: str, number: int) -> np.random.Generator:
    """Return an independent random generator for each (seed, purpose, number)."""
    return np.random.default_rng((seed, zlib.crc32(purpose.encode()), number))


def generators(seed: int, purpose: str, numbers: Sequence[int]) -> list[np.random.Generator]:
    """Return `generator` of each number, in a tenth of the time for a batch of them."""
    return seeding.generators((seed, zlib.crc32(purpose.encode())), numbers)
