"""Pure functions on clips: uint8 arrays (T, H, W, 3), the same draw for every frame of a clip.

Geometry as in mit-han-lab/temporal-shift-module (ops/transforms.py); resizing is OpenCV's plain bilinear.
"""

from collections.abc import Sequence

import cv2
import numpy as np

Box = tuple[int, int, int, int]  # left, top, width, height


def resize(clip: np.ndarray, width: int, height: int) -> np.ndarray:
    """Every frame to (height, width), bilinear."""
    if clip.shape[1:3] == (height, width):
        return clip
    return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_LINEAR) for frame in clip])


def resize_short(clip: np.ndarray, short: int) -> np.ndarray:
    """The shorter side to `short`, the longer one in proportion, truncated."""
    height, width = clip.shape[1:3]
    if width < height:
        return resize(clip, short, int(short * height / width))
    return resize(clip, int(short * width / height), short)


def crop(clip: np.ndarray, box: Box) -> np.ndarray:
    left, top, width, height = box
    return clip[:, top : top + height, left : left + width]


def flip(clip: np.ndarray) -> np.ndarray:
    """Mirror left and right."""
    return clip[:, :, ::-1]


def multi_scale_box(width: int, height: int, size: int, scales: Sequence[float], rng: np.random.Generator) -> Box:
    """Draw a crop: one of the (w, h) pairs of neighbouring scales, at one of 13 fixed points.

    Sizes are int(min(width, height) * scale); one within 2 pixels of `size` becomes `size`.
    """
    sides = [max(1, int(min(width, height) * scale)) for scale in scales]
    sides = [size if abs(side - size) < 3 else side for side in sides]
    pairs = [(w, h) for i, h in enumerate(sides) for j, w in enumerate(sides) if abs(i - j) <= 1]
    w, h = pairs[rng.integers(len(pairs))]
    # A side snapped up to `size` may stick out of a frame that is 1 or 2 pixels smaller.
    w, h = min(w, width), min(h, height)
    points = grid_points(width, height, w, h)
    left, top = points[rng.integers(len(points))]
    return left, top, w, h


def grid_points(width: int, height: int, w: int, h: int) -> list[tuple[int, int]]:
    """The 13 (left, top) points of a 5x5 grid: 4 corners and centre, then 4 edge middles and 4 quarter points."""
    x, y = (width - w) // 4, (height - h) // 4
    steps = [(0, 0), (4, 0), (0, 4), (4, 4), (2, 2), (0, 2), (4, 2), (2, 4), (2, 0), (1, 1), (3, 1), (1, 3), (3, 3)]
    return [(i * x, j * y) for i, j in steps]


def center_box(width: int, height: int, size: int) -> Box:
    """The central square; a half pixel rounds to even, as in torchvision."""
    return int(round((width - size) / 2.0)), int(round((height - size) / 2.0)), size, size


def views(clip: np.ndarray, size: int, crops: int) -> list[np.ndarray]:
    """Test-time crops of an already resized clip.

    1: the centre. 3: left, right, centre of the middle row (identical for a portrait clip whose short side is `size`).
    10: corners and centre, each followed by its mirror image.
    """
    height, width = clip.shape[1:3]
    if crops == 1:
        return [crop(clip, center_box(width, height, size))]
    x, y = (width - size) // 4, (height - size) // 4
    if crops == 3:
        return [crop(clip, (i * x, 2 * y, size, size)) for i in (0, 4, 2)]
    corners = grid_points(width, height, size, size)[:5]
    return [view for left, top in corners for view in _with_mirror(crop(clip, (left, top, size, size)))]


def _with_mirror(clip: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return clip, flip(clip)
