"""Which frames of a video make a clip: 0-based int64 indices for a video of n frames and T segments.

The formulas are those of TSN/TSM (arXiv:1811.08383), in the variants that mit-han-lab/temporal-shift-module uses.
"""

import numpy as np

DENSE_SPAN = 64  # frames a dense clip covers, whatever T is
DENSE_CLIPS = 10


def uniform_train(n: int, segments: int, rng: np.random.Generator) -> np.ndarray:
    """One random frame out of each of T equal spans; the tail n mod T is never drawn. Frame 0, T times, if n < T."""
    span = n // segments
    if span == 0:
        return np.zeros(segments, np.int64)
    return np.arange(segments) * span + rng.integers(0, span, size=segments)


def uniform_test(n: int, segments: int) -> np.ndarray:
    """The middle of each of T equal spans (real-valued spans, truncated)."""
    return _ticks(n, segments, 0.5)


def uniform_val(n: int, segments: int) -> np.ndarray:
    """As uniform_test, but frame 0, T times, for a video of at most T frames, as in mit-han-lab's validation."""
    return uniform_test(n, segments) if n > segments else np.zeros(segments, np.int64)


def twice_test(n: int, segments: int) -> np.ndarray:
    """Two clips (2, T): the middles of the spans, then their beginnings."""
    return np.stack([_ticks(n, segments, 0.5), _ticks(n, segments, 0.0)])


def dense_train(n: int, segments: int, rng: np.random.Generator) -> np.ndarray:
    """T frames at stride 64 // T from a random start, wrapping round. The last valid start is never drawn."""
    starts = max(1, n - DENSE_SPAN + 1)
    start = 0 if starts == 1 else int(rng.integers(0, starts - 1))
    return _dense(n, segments, start)


def dense_test(n: int, segments: int) -> np.ndarray:
    """Ten dense clips (10, T) whose starts are spread evenly over the video."""
    starts = np.linspace(0, max(1, n - DENSE_SPAN + 1) - 1, num=DENSE_CLIPS, dtype=int)
    return np.stack([_dense(n, segments, int(start)) for start in starts])


def _ticks(n: int, segments: int, phase: float) -> np.ndarray:
    tick = n / segments
    return np.array([int(tick * phase + tick * k) for k in range(segments)], np.int64)


def _dense(n: int, segments: int, start: int) -> np.ndarray:
    return (start + np.arange(segments) * (DENSE_SPAN // segments)) % n
