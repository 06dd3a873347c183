"""Sample order and random numbers of a run: pure functions of (seed, position).

A position counts the training samples of the whole run, over all epochs and ranks: position p is sample `p % size` of
epoch `p // size`, of balanced classes too. Nothing here depends on batches, ranks or what was read before. So a resumed
run starts at any position without a replay, and one rank or eight read the same sequence.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from zoo.data import seeding


@dataclass(frozen=True, eq=False)  # hashed by identity, for the cache of permutations
class Balance:
    """Shares of the classes in an epoch: with strength 1 all equally often, with 0 in proportion to their samples.

    Attributes:
        labels: of all samples, int64 (size,).
    """

    labels: np.ndarray
    strength: float

    def draw(self, shuffled: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the sample order of one epoch, of as many samples; those of a class take turns.

        A class gets `per_epoch` places, rounded up or down at random so that this is its mean over epochs.

        Args:
            shuffled: every index once, in the order in which the samples of a class are taken.
        """
        counts, size = np.bincount(self.labels), len(shuffled)
        ends = np.floor(np.cumsum(per_epoch(counts, self.strength)) + rng.random()).astype(np.int64).clip(max=size)
        ends[-1] = size  # the sum is rounded
        places = np.diff(ends, prepend=0)
        by_class = shuffled[np.argsort(self.labels[shuffled], kind="stable")]
        turns = np.arange(size) - np.repeat(ends - places, places)
        firsts = np.repeat(np.cumsum(counts) - counts, places)
        return rng.permutation(by_class[firsts + turns % np.repeat(counts, places)])


def per_epoch(counts: np.ndarray, balance: float) -> np.ndarray:
    """Return how often an epoch shows classes with `counts` samples, in the mean: by count^(1 - balance).

    So 0.5 is square-root sampling (arXiv:1910.09217). A class without samples is never shown.
    """
    shares = np.where(counts > 0, counts.astype(np.float64) ** (1 - balance), 0.0)
    return shares * (counts.sum() / shares.sum())


@lru_cache(maxsize=4)  # a stream needs two epochs at most, and a benchmark reads a second stream
def permutation(seed: int, epoch: int, size: int, balance: Balance | None = None) -> np.ndarray:
    """Return the sample order of one epoch: int64 (size,), every index once unless classes are balanced."""
    rng = generator(seed, "order", epoch)
    shuffled = rng.permutation(size)
    return balance.draw(shuffled, rng) if balance else shuffled


def locate(seed: int, size: int, position: int, balance: Balance | None = None) -> tuple[int, int]:
    """Return the epoch (from 0) and the sample index at a position of the run."""
    epoch, offset = divmod(position, size)
    return epoch, int(permutation(seed, epoch, size, balance)[offset])


def generator(seed: int, purpose: str, number: int) -> np.random.Generator:
    """Return an independent random generator for each (seed, purpose, number)."""
    return np.random.default_rng((seed, zlib.crc32(purpose.encode()), number))


def generators(seed: int, purpose: str, numbers: Sequence[int]) -> list[np.random.Generator]:
    """Return `generator` of each number, in a tenth of the time for a batch of them."""
    return seeding.generators((seed, zlib.crc32(purpose.encode())), numbers)
