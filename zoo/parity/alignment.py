"""Alignment of two sequences in order, and groups of their elements."""

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np

TOLERANCE = 1e-9  # of a sum of scores
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Alignment(NamedTuple):
    """The best order-preserving alignments of two sequences.

    Attributes:
        pairs: those of all best alignments that have no alternative, by index in the second sequence.
        choices: indices in the first sequence that are as good, by index in the second one.
    """

    pairs: dict[int, int]
    choices: dict[int, list[int]]


def align(scores: np.ndarray) -> Alignment:
    """Align two sequences so that the sum of the scores of the pairs is largest.

    Args:
        scores: of each pair, (n, m); 0 if the two cannot be a pair.
    """
    before = _sums(scores)
    after = _sums(scores[::-1, ::-1])[::-1, ::-1]
    best = (scores > 0) & (before[:-1, :-1] + scores + after[1:, 1:] >= before[-1, -1] - TOLERANCE)
    alone = best & (best.sum(0, keepdims=True) == 1) & (best.sum(1, keepdims=True) == 1)
    pairs = {int(j): int(i) for i, j in np.argwhere(alone)}
    tied = np.flatnonzero(best.any(0))
    return Alignment(pairs, {int(j): np.flatnonzero(best[:, j]).tolist() for j in tied if int(j) not in pairs})


def _sums(scores: np.ndarray) -> np.ndarray:
    """Return the sum of the best alignment of the first i and the first j elements, (n + 1, m + 1)."""
    sums = np.zeros((scores.shape[0] + 1, scores.shape[1] + 1))
    for i, row in enumerate(scores):
        paired = np.where(row > 0, sums[i, :-1] + row, 0)
        sums[i + 1, 1:] = np.maximum.accumulate(np.maximum(sums[i, 1:], paired))
    return sums


def grouped(values: Iterable[T], describe: Callable[[T], K]) -> dict[K, list[T]]:
    """Return values by what describes them, in their order."""
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(describe(value), []).append(value)
    return groups
