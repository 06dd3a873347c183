"""How to go through a large activation piece by piece, so that copies of it in a wider type stay small."""

import math
from collections.abc import Iterator, Sequence


def blocks(shape: Sequence[int], at_once: int) -> Iterator[tuple[slice, ...]]:
    """Where to cut (N, C, H, ...) into blocks of about `at_once` elements: between samples, and large ones along H."""
    sample = math.prod(shape[1:])
    samples, rows = max(1, at_once // sample), max(1, shape[2] * at_once // sample)
    for first in range(0, shape[0], samples):
        for top in range(0, shape[2], rows):
            yield slice(first, first + samples), slice(None), slice(top, top + rows)
