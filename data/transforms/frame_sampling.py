"""Sampling of the frames of a clip: 0-based int64 indices for a video of n frames and T segments.

The formulas are those of TSN and TSM (arXiv:1811.08383), in the variants of mit-han-lab/temporal-shift-module.
"""

import numpy as np

DENSE_SPAN = 64  # frames that a dense clip covers, whatever T is
DENSE_CLIPS = 10


def uniform_train(n: int, segments: int, rng: np.random.Generator) -> np.ndarray:
    """Draw one random frame of each of T equal segments, (T,).

    The last n mod T frames are never drawn. A video of fewer than T frames gives T times frame 0.
    """
    length = n // segments
    if length == 0:
        return np.zeros(segments, np.int64)
    return np.arange(segments) * length + rng.integers(0, length, size=segments)


def uniform_test(n: int, segments: int) -> np.ndarray:
    """Return the middle frame of each of T equal segments of real-valued length, truncated, (T,)."""
    return _segment_frames(n, segments, 0.5)


def uniform_val(n: int, segments: int) -> np.ndarray:
    """Return the frames of uniform_test; T times frame 0 for at most T frames, as in mit-han-lab's validation."""
    return uniform_test(n, segments) if n > segments else np.zeros(segments, np.int64)


def twice_test(n: int, segments: int) -> np.ndarray:
    """Return two clips, (2, T): the middle frames of the segments, then their first frames."""
    return np.stack([_segment_frames(n, segments, 0.5), _segment_frames(n, segments, 0.0)])


def dense_train(n: int, segments: int, rng: np.random.Generator) -> np.ndarray:
    """Draw T frames at stride 64 // T from a random start, modulo n, (T,).

    The last valid start is never drawn, as upstream.
    """
    num_starts = max(1, n - DENSE_SPAN + 1)
    start = 0 if num_starts == 1 else int(rng.integers(0, num_starts - 1))
    return _dense_frames(n, segments, start)


def dense_test(n: int, segments: int) -> np.ndarray:
    """Return ten dense clips, (10, T), whose starts are spread evenly over the video."""
    starts = np.linspace(0, max(1, n - DENSE_SPAN + 1) - 1, num=DENSE_CLIPS, dtype=int)
    return np.stack([_dense_frames(n, segments, int(start)) for start in starts])


def _segment_frames(n: int, segments: int, phase: float) -> np.ndarray:
    """Return the frame at a phase, a fraction of the segment length, of every segment."""
    length = n / segments
    return np.array([int(length * phase + length * k) for k in range(segments)], np.int64)


def _dense_frames(n: int, segments: int, start: int) -> np.ndarray:
    return (start + np.arange(segments) * (DENSE_SPAN // segments)) % n
