"""Parameters that are sharded over ranks by rows: the rows of each rank, and those that an update of Partial FC uses."""

import numpy as np

from data import order


def row_range(num_rows: int, rank: int, world_size: int) -> tuple[int, int]:
    """Return the rows [first, last) of a rank. Sizes are balanced: the first `num_rows % world_size` ranks have one more."""
    per_rank, remainder = divmod(num_rows, world_size)
    first = rank * per_rank + min(rank, remainder)
    return first, first + per_rank + (rank < remainder)


def num_active_rows(local_rows: int, sample_rate: float, num_labels: int) -> int:
    """Return the number of a rank's rows that an update uses.

    It is a fraction of the rows, but never less than the number of labels, so that every positive class is among
    them. It is the same in every update, as a compiled step requires.

    Args:
        local_rows: rows that the rank holds.
        sample_rate: the fraction, in (0, 1].
        num_labels: samples of the update, over all ranks.
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
        local_rows: rows that the rank holds.
        count: rows to return.

    Returns:
        int64 (count,), sorted.
    """
    rng = order.generator(seed, f"rows of rank {rank}", step)
    num_negatives = local_rows - len(positives)
    negatives = np.sort(rng.choice(num_negatives, count - len(positives), replace=False, shuffle=False))
    # The k-th negative row is k plus the number of positive rows before it.
    negatives += np.searchsorted(positives - np.arange(len(positives)), negatives, side="right")
    return np.sort(np.concatenate([positives, negatives]))
