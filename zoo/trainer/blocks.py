"""Blocks of a large activation, so that copies of it in a wider type stay small."""

import math
from collections.abc import Iterator, Sequence


def blocks(shape: Sequence[int], block_size: int) -> Iterator[tuple[slice, ...]]:
    """Yield the slices of (N, C, H, ...) into blocks of about `block_size` elements.

    Blocks hold whole samples; samples larger than a block are also cut along H.
    """
    sample_size = math.prod(shape[1:])
    samples, rows = max(1, block_size // sample_size), max(1, shape[2] * block_size // sample_size)
    for first in range(0, shape[0], samples):
        for top in range(0, shape[2], rows):
            yield slice(first, first + samples), slice(None), slice(top, top + rows)
