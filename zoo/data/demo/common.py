"""Demo sets on disk, complete or absent and never mixed up with other data; and drawing with exact numpy arithmetic.

There are no exponentials and no matrix products in it, so that the pixels do not depend on the processor.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from zoo.data.errors import Option, UserError, reason
from zoo.data.fields import SettingError

Item = TypeVar("Item")
Result = TypeVar("Result")
Recipe = dict[str, Any]  # settings that the content of a set depends on, stored in a JSON file inside it


def write(root: str, name: str, recipe: Recipe, content: str, fill: Callable[[str], None]) -> str:
    """Generate a demo set if it is not there, in a temporary folder, so that it is always complete.

    Args:
        root: Folder of the set. If it holds the set of another recipe, a folder beside it is named after this one.
        name: Name of the set; the recipe is stored in <name>.json.
        content: What is generated, for the message to the user, such as `240 small JPEG files`.

    Returns:
        The folder.
    """
    if not os.path.isdir(root):
        print(f"making the demo set in {root}: {content} ...", flush=True)
        temporary = f"{root.rstrip('/')}.making-{os.getpid()}"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            os.makedirs(temporary)
            fill(temporary)
            with open(os.path.join(temporary, f"{name}.json"), "w", encoding="utf-8") as file:
                json.dump(recipe, file)
            os.rename(temporary, root)
        except OSError as error:
            if not os.path.isdir(root):  # otherwise another process was faster and wrote the same bytes
                raise UserError(
                    f"{root}: the demo set cannot be written ({reason(error)}); make room, or choose another folder "
                    "with ",
                    Option("data.root", "FOLDER"),
                ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    try:
        with open(os.path.join(root, f"{name}.json"), encoding="utf-8") as file:
            stored = json.load(file)
    except (OSError, ValueError):
        raise UserError(
            f"{root} is not a demo set of this program (no readable {name}.json); choose another folder with ",
            Option("data.root", "FOLDER"),
        ) from None
    if stored == recipe:
        return root
    return write("-".join([root.rstrip("/"), *map(str, recipe.values())]), name, recipe, content, fill)


def map_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call a function on all items with as many threads as processors, and return the results in order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def check_multiple(settings: Any, keys: Iterable[str], classes: int) -> None:
    """Check that settings are numbers of samples with as many of each class. Raises ValueError."""
    for key in keys:
        if getattr(settings, key) < classes or getattr(settings, key) % classes:
            raise SettingError(key, f"must be a multiple of {classes}, the number of classes")


Point = tuple[float, float]  # x and y in pixels, from the upper left corner
Region = tuple[slice, slice]  # rows and columns
Number = float | np.ndarray


def pick_color(rng: np.random.Generator, colors: Sequence, spread: float = 12) -> np.ndarray:
    """Return one of the colors, varied by up to `spread` levels: (3, 1, 1), channels first as in all drawings."""
    return np.reshape(colors[int(rng.integers(len(colors)))] + rng.uniform(-spread, spread, 3), (3, 1, 1))


def smooth_noise(rng: np.random.Generator, height: int, width: int, step: float) -> np.ndarray:
    """Return noise in [-1, 1]: (height, width), bilinear between random values `step` pixels apart."""
    knots = [int(side / step) + 2 for side in (height, width)]
    values = rng.uniform(-1, 1, knots)
    y, x = (np.arange(side) / step for side in (height, width))
    row, column = y.astype(int), x.astype(int)
    right, down = x - column, (y - row)[:, None]
    lines = values[:, column] * (1 - right) + values[:, column + 1] * right
    return lines[row] * (1 - down) + lines[row + 1] * down


def coverage(inside: Number) -> np.ndarray:
    """Return the covered fraction of a pixel whose center is `inside` pixels inside an edge."""
    return np.minimum(np.maximum(inside + 0.5, 0), 1)


def stripes(positions: np.ndarray, width: Number, duty: Number) -> np.ndarray:
    """Return the covered fraction of pixels on a pattern of period 1, of which the first `duty` is covered.

    Stripes fade to their mean where pixels are wide, as in a camera image.
    """

    def integral(end: np.ndarray) -> np.ndarray:
        whole = np.floor(end)
        return whole * duty + np.minimum(end - whole, duty)

    return (integral(positions + width / 2) - integral(positions - width / 2)) / width


def stripe(positions: np.ndarray, center: float, half_width: float, width: Number) -> np.ndarray:
    """Return the fraction of pixels, `width` wide, that a single stripe covers."""
    overlap = np.minimum(positions + width / 2, center + half_width) - np.maximum(
        positions - width / 2, center - half_width
    )
    return coverage(overlap / width - 0.5)


class Canvas:
    """An image and its labels, painted together: what hides a color hides its label.

    Attributes:
        image: float64 (3, H, W), 0 to 255.
        labels: uint8 (H, W).
        x, y: Centers of the pixels, (H, W).
    """

    def __init__(self, height: int, width: int):
        self.image, self.labels = np.zeros((3, height, width)), np.zeros((height, width), np.uint8)
        self.y, self.x = np.mgrid[:height, :width] + 0.5

    def paint(self, cover: np.ndarray, color: Number, label: int | np.ndarray | None, region: Region) -> None:
        """Blend a color into a region; a pixel gets the label if at least half of it is covered.

        Args:
            cover: Covered fraction of the pixels, (h, w) in [0, 1].
            color: (3, h or 1, w or 1).
            label: An id or an array of ids; None paints light or shadow on the existing objects.
        """
        image = self.image[(slice(None),) + region]
        image += cover * (color - image)
        if label is not None:
            np.copyto(self.labels[region], np.uint8(label), where=cover >= 0.5)

    def window(self, left: float, top: float, right: float, bottom: float) -> tuple[Region, np.ndarray, np.ndarray]:
        """Return the region of pixels that a box touches, and their centers y (h, 1) and x (1, w)."""
        height, width = self.labels.shape
        rows = slice(int(min(max(top - 1, 0), height)), int(min(max(bottom + 2, 0), height)))
        columns = slice(int(min(max(left - 1, 0), width)), int(min(max(right + 2, 0), width)))
        return (rows, columns), self.y[rows, :1], self.x[:1, columns]

    def polygon(self, points: Sequence[Point], color: Number, label: int | None, strength: float = 1) -> None:
        """Paint a convex polygon with distinct corners in either orientation."""
        corners = np.asarray(points, float)
        region, y, x = self.window(*corners.min(0), *corners.max(0))
        ends = np.concatenate([corners[1:], corners[:1]])
        orientation = (corners[:, 0] * ends[:, 1] - corners[:, 1] * ends[:, 0]).sum()
        edges = (ends - corners) * (1 if orientation > 0 else -1)
        right, down = (edges / np.sqrt((edges * edges).sum(1))[:, None]).T[:, :, None, None]
        corner_x, corner_y = corners.T[:, :, None, None]
        inside = (right * (y - corner_y) - down * (x - corner_x)).min(0)  # pixels from the nearest edge: (h, w)
        self.paint(coverage(inside) * strength, color, label, region)

    def rectangle(self, corner: Point, opposite: Point, color: Number, label: int | None) -> None:
        """Paint an axis-aligned rectangle between two corners, the upper left one first."""
        (left, top), (right, bottom) = corner, opposite
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], color, label)

    def capsule(self, start: Point, end: Point, radius: float, color: Number, label: int | None) -> None:
        """Paint all points within `radius` of a line segment; a disc if it has no length."""
        (x0, y0), (x1, y1) = start, end
        region, y, x = self.window(
            min(x0, x1) - radius, min(y0, y1) - radius, max(x0, x1) + radius, max(y0, y1) + radius
        )
        length = (x1 - x0) ** 2 + (y1 - y0) ** 2
        along: Number = 0.0
        if length:
            along = coverage(((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length - 0.5)
        distance = np.sqrt((x - x0 - along * (x1 - x0)) ** 2 + (y - y0 - along * (y1 - y0)) ** 2)
        self.paint(coverage(radius - distance), color, label, region)
