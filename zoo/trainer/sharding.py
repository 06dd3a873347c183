"""Sharding over ranks: parameters by rows, of which an update may use some (Partial FC), and optimizer slots."""

from collections.abc import Mapping

import numpy as np

from zoo.data import order


def row_range(num_rows: int, rank: int, world_size: int) -> tuple[int, int]:
    """Return the rows [first, last) of a rank; the first `num_rows % world_size` ranks have one row more."""
    per_rank, remainder = divmod(num_rows, world_size)
    first = rank * per_rank + min(rank, remainder)
    return first, first + per_rank + (rank < remainder)


def num_active_rows(local_rows: int, sample_rate: float, num_labels: int) -> int:
    """Return the number of a rank's rows that an update uses.

    It is a fraction of the rows, but never less than the number of labels, so that every positive class is among
    them. It is the same in every update, as a compiled step requires.

    Args:
        sample_rate: the fraction, in (0, 1].
    """
    return min(local_rows, max(int(sample_rate * local_rows), num_labels))


def sample_active_rows(
    positives: np.ndarray, local_rows: int, count: int, seed: int, rank: int, step: int
) -> np.ndarray:
    """Sample the rows that an update uses: all positive classes, and negative ones drawn uniformly.

    Partial FC (arXiv:2203.15565) as a function of the seed, the rank and the step, hence the same in every framework
    and after every resume. Time and memory do not grow with `local_rows` while `count` is small.

    Args:
        positives: rows of the classes in the batch, sorted and unique.

    Returns:
        int64 (count,), sorted.
    """
    rng = order.generator(seed, f"rows of rank {rank}", step)
    num_negatives = local_rows - len(positives)
    negatives = np.sort(rng.choice(num_negatives, count - len(positives), replace=False, shuffle=False))
    # The k-th negative row is k plus the number of positive rows before it.
    negatives += np.searchsorted(positives - np.arange(len(positives)), negatives, side="right")
    return np.sort(np.concatenate([positives, negatives]))


def choose_active_rows(
    rows: np.ndarray, local_rows: int, sample_rate: float, seed: int, rank: int, step: int
) -> np.ndarray:
    """Return the rows that update `step` uses, given the rows of the classes of all its samples.

    Args:
        rows: any shape; -1 for a class of another rank.

    Returns:
        int64 (num_active_rows,), sorted.
    """
    positives = np.unique(rows).astype(np.int64)
    count = num_active_rows(local_rows, sample_rate, rows.size)
    return sample_active_rows(positives[positives >= 0], local_rows, count, seed, rank, step)


def partition(sizes: Mapping[str, int], world_size: int) -> dict[str, int]:
    """Divide whole tensors over ranks: each, the largest first, goes to the rank that has the fewest elements.

    Returns:
        The rank of each name.
    """
    loads, ranks = [0] * world_size, {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        ranks[name] = loads.index(min(loads))
        loads[ranks[name]] += sizes[name]
    return ranks
