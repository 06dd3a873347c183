"""The largest batch that fits, by doubling and bisecting."""

from collections.abc import Callable

LIMIT = 1 << 16  # samples per process: a batch beyond it is not tried
RESOLUTION = 16  # the answer is exact to one part in this many


def largest(fits: Callable[[int], bool], start: int) -> int:
    """Return the largest batch that fits, to one part in RESOLUTION; 0 if none does.

    Args:
        fits: tells whether a batch fits; one that is larger than a batch that does not, does not either.
        start: first batch to try.
    """
    low, high = 0, max(1, start)
    while high <= LIMIT and fits(high):
        low, high = high, 2 * high
    if high > LIMIT:
        return low
    if not low:  # the first one did not fit
        while high > 1:
            half = high // 2
            if fits(half):
                low = half
                break
            high = half
    while low and high - low > max(1, low // RESOLUTION):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
