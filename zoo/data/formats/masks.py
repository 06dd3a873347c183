"""Segmentation masks: PNG files with a value per pixel, the classes the values stand for, and checks before a run."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np

from zoo.data.batch import IGNORE_INDEX
from zoo.data.errors import BadSample, Option, UserError
from zoo.data.extras import cv2
from zoo.data.formats import images, regular

GRID_LEVELS = 9  # values of red, green and blue in the grid of colors for other classes


class Label(NamedTuple):
    """One of Cityscapes' 35 labels.

    id is its value in *_labelIds.png, train_id its value in *_labelTrainIds.png (None: 255, not evaluated).
    """

    id: int
    name: str
    train_id: int | None
    color: tuple[int, int, int]


LABELS = (
    Label(0, "unlabeled", None, (0, 0, 0)),
    Label(1, "ego vehicle", None, (0, 0, 0)),
    Label(2, "rectification border", None, (0, 0, 0)),
    Label(3, "out of roi", None, (0, 0, 0)),
    Label(4, "static", None, (0, 0, 0)),
    Label(5, "dynamic", None, (111, 74, 0)),
    Label(6, "ground", None, (81, 0, 81)),
    Label(7, "road", 0, (128, 64, 128)),
    Label(8, "sidewalk", 1, (244, 35, 232)),
    Label(9, "parking", None, (250, 170, 160)),
    Label(10, "rail track", None, (230, 150, 140)),
    Label(11, "building", 2, (70, 70, 70)),
    Label(12, "wall", 3, (102, 102, 156)),
    Label(13, "fence", 4, (190, 153, 153)),
    Label(14, "guard rail", None, (180, 165, 180)),
    Label(15, "bridge", None, (150, 100, 100)),
    Label(16, "tunnel", None, (150, 120, 90)),
    Label(17, "pole", 5, (153, 153, 153)),
    Label(18, "polegroup", None, (153, 153, 153)),
    Label(19, "traffic light", 6, (250, 170, 30)),
    Label(20, "traffic sign", 7, (220, 220, 0)),
    Label(21, "vegetation", 8, (107, 142, 35)),
    Label(22, "terrain", 9, (152, 251, 152)),
    Label(23, "sky", 10, (70, 130, 180)),
    Label(24, "person", 11, (220, 20, 60)),
    Label(25, "rider", 12, (255, 0, 0)),
    Label(26, "car", 13, (0, 0, 142)),
    Label(27, "truck", 14, (0, 0, 70)),
    Label(28, "bus", 15, (0, 60, 100)),
    Label(29, "caravan", None, (0, 0, 90)),
    Label(30, "trailer", None, (0, 0, 110)),
    Label(31, "train", 16, (0, 80, 100)),
    Label(32, "motorcycle", 17, (0, 0, 230)),
    Label(33, "bicycle", 18, (119, 11, 32)),
    Label(-1, "license plate", None, (0, 0, 142)),  # in polygons only: masks have the car behind it
)
EVALUATED = tuple(label for label in LABELS if label.train_id is not None)  # in the order of their train ids
TRAIN_CLASSES = tuple(label.name for label in EVALUATED)

TRAIN_IDS = np.full(256, IGNORE_INDEX, np.uint8)  # id -> train id
TRAIN_IDS[[label.id for label in EVALUATED]] = [label.train_id for label in EVALUATED]


def class_colors(classes: Sequence[str]) -> np.ndarray:
    """Choose a color for every class, always the same for the same names.

    The 19 evaluated classes of Cityscapes have their official colors. Every other class, in turn, gets the color of a
    grid that is farthest from all earlier ones, and from black and white, which stand for ignored pixels and text.

    Returns:
        uint8 RGB (K, 3).
    """
    official = {label.name: label.color for label in EVALUATED}
    grid = np.indices((GRID_LEVELS,) * 3).reshape(3, -1).T * 255 // (GRID_LEVELS - 1)
    taken = [(0, 0, 0), (255, 255, 255)] + [official[name] for name in classes if name in official]
    distances = np.min([_distances(grid, color) for color in taken], axis=0)
    colors: list[Sequence[int]] = []
    for name in classes:
        color: Sequence[int] | None = official.get(name)
        if color is None:
            color = grid[distances.argmax()]
            distances = np.minimum(distances, _distances(grid, color))
        colors.append(color)
    return np.array(colors, np.uint8).reshape(-1, 3)


def _distances(colors: np.ndarray, color: Sequence[int]) -> np.ndarray:
    """Squared distances as integers, weighted like human vision: green most, blue next, red least."""
    return ((colors - np.asarray(color)) ** 2) @ np.array([2, 4, 3])


Found = TypeVar("Found")
Color = tuple[int, ...]  # red, green, blue
Pair = tuple[str, str]  # paths of an image and its mask, relative to the root

READABLE_MODES = ("L", "I;16B", "P", "P;1", "P;2", "P;4")  # Pillow's names for gray of 8 and 16 bits, and palettes
BLACK, BLACK_AND_WHITE = (0, 0, 0), [0, IGNORE_INDEX]  # a color, and values
MAX_REPORTED_VALUES = 10
SCAN_THREADS, SCAN_CHUNK = 4, 64  # masks that are read at once, and handed to the threads at once
# A mask is soft if it has many values, and so many of its changes along a row pass by a value between two others. In
# 163 masks of CamVid and labelme that share is 0.03 at most; resized by interpolation or saved as JPEG, 0.2 to 0.9.
# Where most pixels change, there are no areas: random numbers.
SOFT_VALUES, SOFT_SHARE, MOST = 5, 0.15, 0.5
SOFT_ROWS = 256  # of a mask that are looked at, about


class InvalidMask(BadSample):
    """A readable file that is not a mask of this set. Other files most likely have the same fault."""


class LabelMap(NamedTuple):
    """Classes that the values of masks stand for."""

    table: np.ndarray  # uint8 (256,): value -> class, or IGNORE_INDEX
    legal: np.ndarray  # uint8 (256,): 1 for values that may occur
    description: str  # of the legal values


class MaskStats(NamedTuple):
    """Contents of one mask.

    Attributes:
        counts: pixels of each value, int64 (256,).
        places: all indices that its palette has for each color of a pixel; nothing for gray levels.
        shrunk: whether its palette has the colors of its pixels alone, or black.
        soft: whether values between those of the classes were made up.
        turned: whether its metadata, or those of its image, say that it is not upright.
    """

    path: str
    counts: np.ndarray
    places: Mapping[Color, frozenset[int]] = MappingProxyType({})
    shrunk: bool = False
    soft: bool = False
    turned: bool = False


def class_indices(num_classes: int) -> LabelMap:
    table = np.full(256, IGNORE_INDEX, np.uint8)
    table[:num_classes] = np.arange(num_classes)
    legal = (np.arange(256) < num_classes) | (np.arange(256) == IGNORE_INDEX)
    return LabelMap(
        table,
        legal.astype(np.uint8),
        f"0 to {num_classes - 1} for the {num_classes} classes and {IGNORE_INDEX} for ignored pixels",
    )


def cityscapes_ids() -> LabelMap:
    """Return the map of masks that hold Cityscapes' ids (*_labelIds.png)."""
    last = max(label.id for label in LABELS)
    return LabelMap(
        TRAIN_IDS,
        (np.arange(256) <= last).astype(np.uint8),
        f"Cityscapes' ids 0 to {last} (for masks with train ids, 0 to 18 and 255, set data.labels to labelTrainIds "
        "and name the files so)",
    )


def read_values(file: str | BinaryIO) -> np.ndarray:
    """Read the values of a mask, a path or an open file: its gray levels or, of a PNG with a palette, the indices.

    Returns:
        uint8 (H, W).

    Raises:
        BadSample: the file cannot be read.
        InvalidMask: the file is not a PNG with one value up to 255 per pixel.
    """
    return _read(file)[0]


def look(file: str | BinaryIO, path: str) -> MaskStats:
    """Count the values of a mask, and look at its palette and at the borders of its areas.

    Raises:
        BadSample, InvalidMask: as `read_values`.
    """
    values, palette = _read(file)
    counts = cv2.calcHist([values], [0], None, [256], [0, 256]).ravel().astype(np.int64)  # in OpenCV 4 (256, 1)
    used, places = np.flatnonzero(counts), {}
    for index in used[used < len(palette)]:
        same = np.flatnonzero((palette == palette[index]).all(axis=1))
        places[tuple(palette[index].tolist())] = frozenset(same.tolist())
    shrunk = {*map(tuple, palette.tolist())} <= {*places, BLACK}
    return MaskStats(path, counts, places, shrunk, len(used) >= SOFT_VALUES and _is_soft(values))


def _is_soft(values: np.ndarray) -> bool:
    rows = values[:: max(1, len(values) // SOFT_ROWS)]
    left, middle, right = rows[:, :-2], rows[:, 1:-1], rows[:, 2:]
    between = ((left < middle) & (middle < right)) | ((left > middle) & (middle > right))
    changes = np.count_nonzero(rows[:, 1:] != rows[:, :-1])
    return changes < MOST * rows.size and np.count_nonzero(between) > SOFT_SHARE * changes


def _read(file: str | BinaryIO) -> tuple[np.ndarray, np.ndarray]:
    """Read the values of a mask, uint8 (H, W), and the colors of its palette, uint8 (n, 3), n = 0 for gray levels."""
    palette = np.empty((0, 3), np.uint8)
    if isinstance(file, io.BytesIO) and (raw := images.raw_pixels(file.getvalue(), images.PGM)) is not None:
        return raw, palette  # of a prepared scene
    with images.open_image(file, regular.MASK) as image:
        if image.format != "PNG":
            raise InvalidMask(f"a {image.format} file; masks are PNG files, since other formats may change the values")
        if image.tile[0][3] not in READABLE_MODES:  # type: ignore[attr-defined]
            # In gray of 1, 2 or 4 bits, some programs store class numbers, others gray levels: 1 may mean 255.
            content = "gray of less than 8 bits" if image.mode in ("1", "L") else f"colors (mode {image.mode})"
            raise InvalidMask(
                f"holds {content}, but a mask holds one class number per pixel; write the numbers as an 8-bit gray "
                "PNG, or as the indices of a PNG with a palette"
            )
        values = np.asarray(image)
        if image.mode == "P":
            palette = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
            _check_palette(values, palette)
    if values.dtype == np.uint8:
        return values, palette
    if values.max() > 255:
        raise InvalidMask(f"holds 16-bit values up to {values.max()}; write class numbers from 0 to 254")
    return values.astype(np.uint8), palette


def _check_palette(values: np.ndarray, palette: np.ndarray) -> None:
    """Raise InvalidMask where both the indices and the gray levels of a palette may be the classes.

    Programs that shrink PNG files (optipng, pngquant) store gray images so, and others masks, by their indices. Colors
    are for the eye alone.
    """
    if (palette != palette[:, :1]).any():
        return
    used = np.flatnonzero(np.bincount(values.ravel(), minlength=256))
    levels = palette[used[used < len(palette)], 0]
    if not np.array_equal(levels, used):
        raise InvalidMask(
            f"has a palette of gray levels: its pixels are {', '.join(map(str, used[:MAX_REPORTED_VALUES]))} by index, "
            f"and {', '.join(map(str, levels[:MAX_REPORTED_VALUES]))} by level; write the classes as an 8-bit gray PNG"
        )


def read_labels(file: str | BinaryIO, label_map: LabelMap) -> np.ndarray:
    """Read the class of every pixel: uint8 (H, W), IGNORE_INDEX for none. Raises BadSample or InvalidMask."""
    values = read_values(file)
    if not cv2.LUT(values, label_map.legal).all():
        check_values(np.unique(values), label_map)
    return cv2.LUT(values, label_map.table)


def check_values(values: Iterable[int], label_map: LabelMap) -> None:
    """Raise InvalidMask, which lists them, if some values are not legal."""
    illegal = [int(value) for value in values if not label_map.legal[value]]
    if illegal:
        listed = ", ".join(map(str, illegal[:MAX_REPORTED_VALUES]))
        listed += " ..." if len(illegal) > MAX_REPORTED_VALUES else ""
        raise InvalidMask(
            f"holds the value{'s' * (len(illegal) > 1)} {listed}; legal values are {label_map.description}"
        )


def check_sizes(image_size: Sequence[int], mask_size: Sequence[int]) -> None:
    """Raise InvalidMask unless the sizes (width, height) of an image and its mask are equal."""
    (width, height), (mask_width, mask_height) = image_size, mask_size
    if (width, height) != (mask_width, mask_height):
        hint = "; make the mask of this image, or resize it to the nearest pixel"
        if (width, height) == (mask_height, mask_width):
            hint = "; one of them is rotated: store the image upright, EXIF orientation is ignored"
        raise InvalidMask(f"the image has {width} x {height} pixels, its mask {mask_width} x {mask_height}{hint}")


def scan(root: str, splits: Sequence[Sequence[Pair]], count: int, allow_void: bool = False) -> list[list[MaskStats]]:
    """Count the values in some masks of each split, before a run.

    Args:
        root: folder that the paths are relative to.
        count: number of masks per split, evenly spread. Damaged ones are left out: the stream handles them.
        allow_void: accept masks that hold nothing but 0 and 255, where 255 really means ignored pixels.

    Returns:
        For each split, the counts of its masks.
    """
    stats = []
    with ThreadPoolExecutor(SCAN_THREADS) as pool:
        for pairs in splits:
            indices = np.linspace(0, len(pairs) - 1, min(count, len(pairs))).round().astype(int)
            scanned = pool.map(partial(_scan_pair, root), [pairs[index] for index in indices])
            split_stats = [mask_stats for mask_stats in scanned if mask_stats]
            if not split_stats:
                raise UserError(
                    f"{os.path.join(root, pairs[0][1])}: neither this mask with its image nor one of the "
                    f"{len(indices) - 1} others checked can be read; replace the damaged files"
                )
            stats.append(split_stats)
    check_together(chain(*stats), allow_void)
    return stats


def validate(stats: Sequence[MaskStats], label_map: LabelMap, num_classes: int) -> np.ndarray:
    """Count the pixels of every class and, last, the ignored ones.

    Returns:
        int64 (num_classes + 1,).
    """
    for mask_stats in stats:
        try:
            check_values(np.flatnonzero(mask_stats.counts), label_map)
        except InvalidMask as error:
            raise UserError(f"{mask_stats.path}: {error}") from None
    return by_class(sum((one.counts for one in stats), np.zeros(256, np.int64)), label_map, num_classes)


def by_class(counts: np.ndarray, label_map: LabelMap, num_classes: int) -> np.ndarray:
    """Return the pixels of every class and, last, of the ignored ones, int64 (num_classes + 1,), by those of values."""
    total = np.zeros(256, np.int64)
    np.add.at(total, label_map.table, counts)
    return np.append(total[:num_classes], total[IGNORE_INDEX])


def in_threads(look_at: Callable[[int], Found], indices: Sequence[int]) -> Iterator[Found]:
    """Yield what a function returns for each index, in their order; a few are read ahead."""
    with ThreadPoolExecutor(SCAN_THREADS) as pool:
        for start in range(0, len(indices), SCAN_CHUNK):
            yield from pool.map(look_at, indices[start : start + SCAN_CHUNK])


def check_together(stats: Iterable[MaskStats], allow_void: bool = False) -> np.ndarray:
    """Check that the values of masks mean the same, and count their pixels: int64 (256,)."""
    places, colors = dict[Color, tuple[frozenset[int], str]](), dict[int, tuple[Color, str]]()
    total, path = np.zeros(256, np.int64), ""
    for one in stats:
        total, path = total + one.counts, path or one.path
        if not allow_void:
            _refuse_black_and_white(one.counts, one.path)
        if one.soft:
            raise UserError(
                f"{one.path}: holds {describe_values(one.counts)}; values along borders are blends of those on both "
                "sides, as resizing with interpolation, soft brushes and JPEG make them; resize masks to the nearest "
                "pixel (Image.Resampling.NEAREST), and save them as PNG"
            )
        for color, indices in one.places.items():
            index = min(indices)
            known, other = places.get(color, (indices, one.path))
            if not known & indices:
                raise _renumbered(one.path, f"the color {color} has index {index}", f"{min(known)} in {other}")
            places[color] = known & indices, other
            first, other = colors.setdefault(index, (color, one.path)) if one.shrunk else (color, "")
            if first != color:
                raise _renumbered(one.path, f"index {index} has the color {color}", f"{first} in {other}")
    if not allow_void and path:
        _refuse_black_and_white(total, path)
    return total


def _renumbered(path: str, what: str, elsewhere: str) -> UserError:
    return UserError(
        f"{path}: {what} in the palette, but {elsewhere}: a program such as convert, oxipng or pngquant numbered the "
        "colors of each file anew, so indices are no classes; take the masks as they were before, or write 8-bit gray "
        "PNG files"
    )


def describe_values(counts: np.ndarray, classes: Sequence[str] = ()) -> str:
    """Return the most frequent values of masks: `0 sky (90.2%), 1 car (7.8%) and 255 for ignored (2.0%)`.

    Args:
        counts: pixels of each value; the last one stands for ignored ones.
        classes: names of the values; `class 7` is not repeated.
    """
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)].tolist()
    names = {value: f"{value} {name}" for value, name in enumerate(classes) if name != f"class {value}"}
    names[len(counts) - 1] = f"{IGNORE_INDEX} for ignored"
    shown = order if len(order) <= MAX_REPORTED_VALUES else order[: MAX_REPORTED_VALUES - 1]
    parts = [f"{names.get(value, value)} ({counts[value] / counts.sum():.1%})" for value in shown]
    parts += [f"{len(order) - len(shown)} other values"] if len(shown) < len(order) else []
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def _scan_pair(root: str, pair: Pair) -> MaskStats | None:
    """Count the values of a mask; None if it or its image is damaged. Raises UserError if they do not match."""
    image_path, mask_path = (os.path.join(root, path) for path in pair)
    try:
        found = look(mask_path, mask_path)
        image, mask = images.read(image_path), images.read(mask_path)
        check_sizes(image.stored, mask.stored)
    except InvalidMask as error:
        raise UserError(f"{mask_path}: {error}") from None
    except BadSample:
        return None
    return found._replace(turned={image.orientation, mask.orientation} != {images.UPRIGHT})


def _refuse_black_and_white(counts: np.ndarray, path: str) -> None:
    """Raise UserError if a mask, or a whole set, holds nothing but 0 and 255."""
    if np.flatnonzero(counts).tolist() == BLACK_AND_WHITE:
        raise UserError(
            f"{path}: holds nothing but 0 and 255, as black-and-white masks do; but 255 stands for "
            "ignored pixels: write 1 instead of it, or pass ",
            Option("data.void_masks", True),
            " if they are to be ignored",
        )
