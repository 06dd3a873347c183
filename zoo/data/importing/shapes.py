"""The shapes of labels, and the mask that they make. A pixel belongs to a polygon if its center lies inside.

The center of the first pixel lies at (0.5, 0.5), as in LabelMe, COCO and CVAT. Inside is even-odd, as in pycocotools,
and half-open: polygons with a common edge neither overlap there nor leave a gap.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import BadSample, parsing
from zoo.data.extras import cv2
from zoo.data.formats import regular

MAX_COORDINATE = 1e7  # pixels
MAX_CROSSINGS = 1 << 22  # of the edges of a polygon with rows of pixels: 200 MB
MAX_SHAPES = (1 << 16) - 1  # of an image, whose pixels hold the number of a shape
SQUARE = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], np.float64)
ANGLES = np.arange(720) * (np.pi / 360)
CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)  # within 1e-5


class Region(NamedTuple):
    """Pixels of an image: a window, bool (h, w), whose first one lies at (top, left). It may exceed the image."""

    top: int
    left: int
    inside: np.ndarray


class Shape(NamedTuple):
    """A labeled shape; draw(height, width) returns its region in an image of this size, or raises BadSample."""

    label: str
    draw: Callable[[int, int], Region]
    order: float = 0  # higher ones lie above; of equal ones, the later


def paint(
    shapes: Sequence[Shape], size: tuple[int, int], values: Mapping[str, int], rest: int
) -> tuple[np.ndarray, list[str]]:
    """Draw shapes, the lowest first. Raises BadSample.

    Args:
        size: width and height of the image.
        values: of the pixels of a label.
        rest: value of all other pixels.

    Returns:
        The mask, uint8 (H, W), and a line for each shape that is not seen in it.
    """
    if len(shapes) > MAX_SHAPES:
        raise BadSample(f"{len(shapes)} shapes, the limit is {MAX_SHAPES}")
    width, height = size
    numbers, value_of, lost = np.zeros((height, width), np.uint16), [rest], []
    for shape in sorted(shapes, key=lambda shape: shape.order):
        try:
            with parsing("invalid shape", kind=BadSample):
                if shape.label not in values:
                    raise BadSample(f"shape of {shape.label}, which --classes leaves out")
                top, left, inside = shape.draw(height, width)
                inside = inside[max(-top, 0) : max(height - top, 0), max(-left, 0) : max(width - left, 0)]
                if not inside.any():
                    raise BadSample("shape outside of the image, or without the center of a pixel")
        except BadSample as error:
            lost.append(str(error))
            continue
        top, left = max(top, 0), max(left, 0)
        numbers[top : top + inside.shape[0], left : left + inside.shape[1]][inside] = len(value_of)
        value_of.append(values[shape.label])
    seen = cv2.calcHist([numbers], [0], None, [len(value_of)], [0, len(value_of)]).ravel() > 0
    lost += ["shape covered by others"] * int((~seen[1:]).sum())
    return np.array(value_of, np.uint8)[numbers], lost


def as_points(values: object) -> np.ndarray:
    """Return coordinates, pairs or in a row, as float (n, 2). Raises BadSample, and errors of numpy."""
    points = np.asarray(values, np.float64).reshape(-1, 2)
    if not (np.abs(points) <= MAX_COORDINATE).all():
        raise BadSample("shape whose coordinates are no pixels")
    return points


def outline(unit: np.ndarray, corners: np.ndarray, degrees: float = 0) -> np.ndarray:
    """Return the polygon of a box, or of the ellipse in it.

    Args:
        corners: two opposite ones of the box, (2, 2).
        degrees: turned clockwise about its center.
    """
    points = (1 - unit) / 2 * corners[0] + (1 + unit) / 2 * corners[1]  # without rounding at the corners
    if not degrees:
        return points
    sine, cosine = np.sin(np.radians(degrees)), np.cos(np.radians(degrees))
    center = corners.mean(axis=0)
    return (points - center) @ np.array([(cosine, sine), (-sine, cosine)]) + center


def area(points: np.ndarray) -> float:
    """Return the area of a polygon, float (n, 2)."""
    (x, y), (next_x, next_y) = points.T, np.roll(points, -1, axis=0).T
    return abs(float((x * next_y - next_x * y).sum())) / 2


def polygon(points: np.ndarray, height: int, width: int) -> Region:
    """Fill a polygon, float (n, 2) of x and y. Raises BadSample."""
    if len(points) < 3:
        raise BadSample("polygon of fewer than 3 points")
    (x, y), (next_x, next_y) = points.T, np.roll(points, -1, axis=0).T
    # Rows whose center line an edge crosses, without its lower end: a corner counts for one of its edges.
    first, end = (np.clip(np.ceil(end(y, next_y) - 0.5), 0, height).astype(int) for end in (np.minimum, np.maximum))
    counts = end - first
    total = int(counts.sum())
    if total > MAX_CROSSINGS:
        raise BadSample(f"polygon whose edges cross {total} rows of pixels, the limit is {MAX_CROSSINGS}")
    if not total:
        return Region(0, 0, np.zeros((0, 0), bool))
    edge = np.repeat(np.arange(len(points)), counts)
    row = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts) + first[edge]
    crossing = x[edge] + (row + 0.5 - y[edge]) * (next_x - x)[edge] / (next_y - y)[edge]
    column = np.clip(np.ceil(crossing - 0.5), 0, width).astype(int)  # the first one to the right of the edge
    top, left = int(row.min()), int(column.min())
    toggles = np.zeros((row.max() - top + 1, column.max() - left + 1), np.uint8)
    np.bitwise_xor.at(toggles, (row - top, column - left), 1)
    return Region(top, left, np.bitwise_xor.accumulate(toggles, axis=1)[:, :-1].astype(bool))


def runs(counts: object, shape: tuple[int, int]) -> np.ndarray:
    """Return bool `shape` from the lengths of its runs, row by row, the first one outside. Raises BadSample."""
    lengths = np.asarray(counts, np.int64)
    regular.check_pixels(*shape)
    if lengths.ndim != 1 or (lengths < 0).any() or lengths.sum() != shape[0] * shape[1]:
        raise BadSample("runs that do not make up their mask")
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths).reshape(shape)


def coco_runs(counts: object, size: object, height: int, width: int) -> Region:
    """Draw COCO's runs, column by column, compressed or not. Raises BadSample."""
    if size != [height, width]:
        raise BadSample(f"runs of another size, {size}, than their image")
    return Region(0, 0, runs(lengths_of(counts), (width, height)).T)


def lengths_of(counts: Any) -> Any:
    """Return the lengths of COCO's runs, which may be compressed."""
    return decode_counts(counts) if isinstance(counts, str) else counts


def decode_counts(text: str) -> np.ndarray:
    """Return the lengths of runs, int64 (n,), from COCO's compressed ones. Raises BadSample.

    A length is a number in base 32, lowest digit first, in characters from code 48 on. 32 is added to all its digits
    but the last, whose 16 is a sign. From the fourth on, lengths are differences to the last but one.
    """
    codes = np.frombuffer(text.encode(), np.uint8).astype(np.int64) - 48
    last = np.flatnonzero(codes & 32 == 0)
    starts = np.append(0, last + 1)
    if not len(last) or starts[-1] != len(codes) or codes.min() < 0 or codes.max() > 63 or np.diff(starts).max() > 7:
        raise BadSample("compressed runs that are damaged")
    digit = np.arange(len(codes)) - np.repeat(starts[:-1], np.diff(starts))
    lengths = np.add.reduceat((codes & 31) << 5 * digit, starts[:-1])
    lengths -= (codes[last] >> 4 & 1) << 5 * (digit[last] + 1)
    lengths[1::2], lengths[2::2] = np.cumsum(lengths[1::2]), np.cumsum(lengths[2::2])
    return lengths


def of_value(read: Callable[[], np.ndarray], value: int, height: int, width: int) -> Region:
    """Draw the pixels with a value of a map (H, W) that `read` returns. Raises BadSample."""
    values = read()
    if values.shape != (height, width):
        raise BadSample(f"mask of another size, {values.shape[::-1]}, than its image")
    return Region(0, 0, values == value)
