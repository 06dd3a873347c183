"""Parameters that are split over ranks by rows: who holds which, and which of them an update uses."""

import numpy as np

from data import order


def rows(count: int, rank: int, size: int) -> tuple[int, int]:
    """[first, last) of `count` rows on a rank: balanced, the first `count` mod `size` ranks hold one more."""
    each, more = divmod(count, size)
    first = rank * each + min(rank, more)
    return first, first + each + (rank < more)


def used(held: int, rate: float, labels: int) -> int:
    """How many of `held` rows an update uses: a share `rate`, but never fewer than it may have positives.

    So the number is the same in every update, as a compiled step wants it, and no positive is ever left out.
    labels: samples of the update, over all ranks.
    """
    return min(held, max(int(rate * held), labels))


def sample(positives: np.ndarray, held: int, count: int, seed: int, rank: int, number: int) -> np.ndarray:
    """`count` of `held` rows, rising, int64: all positives (rising, unique), the others drawn evenly.

    Partial FC (arXiv:2203.15565), as a function of the seed, the rank and the number of the update: the same in every
    framework and after every resume. Costs no time or memory in proportion to `held` while `count` is small.
    """
    rng = order.generator(seed, f"rows of rank {rank}", number)
    others = np.sort(rng.choice(held - len(positives), count - len(positives), replace=False, shuffle=False))
    # The k-th row that is no positive has k plus as many positives as lie before it.
    others += np.searchsorted(positives - np.arange(len(positives)), others, side="right")
    return np.sort(np.concatenate([positives, others]))
