"""Boxes of clips, the same for every frame: the multi-scale crop of training and the views of an evaluation.

Geometry as in mit-han-lab/temporal-shift-module (ops/transforms.py).
"""

from collections.abc import Sequence

import numpy as np

from zoo.data.transforms.geometry import Box

SNAP_DISTANCE = 3  # pixels; a side of a multi-scale crop that is closer to the target size takes that size


def multi_scale_box(width: int, height: int, size: int, scales: Sequence[float], rng: np.random.Generator) -> Box:
    """Draw a multi-scale crop: the sides from neighboring scales, the position from 13 fixed ones.

    Args:
        size: target size in pixels; a side within 2 pixels of it takes that size.
        scales: fractions of the shorter side of the frame that a side may have, truncated to pixels.
    """
    sides = [max(1, int(min(width, height) * scale)) for scale in scales]
    sides = [size if abs(side - size) < SNAP_DISTANCE else side for side in sides]
    pairs = [(w, h) for i, h in enumerate(sides) for j, w in enumerate(sides) if abs(i - j) <= 1]
    w, h = pairs[rng.integers(len(pairs))]
    # A side enlarged to `size` may exceed a frame that is 1 or 2 pixels smaller.
    w, h = min(w, width), min(h, height)
    corners = grid_corners(width, height, w, h)
    left, top = corners[rng.integers(len(corners))]
    return left, top, w, h


def grid_corners(width: int, height: int, box_width: int, box_height: int) -> list[tuple[int, int]]:
    """Return the (left, top) of 13 boxes on a 5x5 grid: 4 corners and center, 4 edge centers, 4 quarter points."""
    x, y = (width - box_width) // 4, (height - box_height) // 4
    steps = [(0, 0), (4, 0), (0, 4), (4, 4), (2, 2), (0, 2), (4, 2), (2, 4), (2, 0), (1, 1), (3, 1), (1, 3), (3, 3)]
    return [(i * x, j * y) for i, j in steps]


def center_box(width: int, height: int, size: int) -> Box:
    """Return the central square; half pixels round to even, as in torchvision."""
    return round((width - size) / 2.0), round((height - size) / 2.0), size, size


def view_boxes(width: int, height: int, size: int, crops: int) -> list[tuple[Box, bool]]:
    """Return the boxes of the test-time crops of a resized clip, and whether the crop is mirrored.

    Args:
        width: of its frames, at least `size`.
        height: of its frames, at least `size`.
        crops: 1: the center. 3: left, right and center of the middle row (identical for a portrait clip whose shorter
            side is `size`). 10: the corners and the center, each followed by its mirrored version.
    """
    if crops == 1:
        return [(center_box(width, height, size), False)]
    if crops == 3:
        x, y = (width - size) // 4, (height - size) // 4
        return [((i * x, 2 * y, size, size), False) for i in (0, 4, 2)]
    corners = grid_corners(width, height, size, size)[:5]
    return [((left, top, size, size), mirrored) for left, top in corners for mirrored in (False, True)]


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
    length = n / segments
    return np.array([int(length * phase + length * k) for k in range(segments)], np.int64)


def _dense_frames(n: int, segments: int, start: int) -> np.ndarray:
    return (start + np.arange(segments) * (DENSE_SPAN // segments)) % n
