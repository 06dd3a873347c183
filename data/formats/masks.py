"""Segmentation masks: PNG files with a value per pixel, the classes the values stand for, and checks before a run."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import BinaryIO, NamedTuple

import cv2
import numpy as np

from zoo.data.errors import BadSample, UserError
from zoo.data.formats import images, regular
from zoo.data.formats.palette import IGNORE_INDEX, LABELS, TRAIN_IDS

Pair = tuple[str, str]  # paths of an image and its mask, relative to the root

READABLE_MODES = ("L", "I;16B", "P", "P;1", "P;2", "P;4")  # Pillow's names for gray of 8 and 16 bits, and palettes
BLACK_AND_WHITE = [0, IGNORE_INDEX]
MAX_REPORTED_VALUES = 10
SCAN_THREADS = 4


class InvalidMask(BadSample):
    """A readable file that is not a mask of this set. Other files most likely have the same fault."""


class LabelMap(NamedTuple):
    """Classes that the values of masks stand for."""

    table: np.ndarray  # uint8 (256,): value -> class, or IGNORE_INDEX
    legal: np.ndarray  # uint8 (256,): 1 for values that may occur
    description: str  # of the legal values


class MaskStats(NamedTuple):
    """Number of pixels of each value in one mask."""

    path: str
    counts: np.ndarray  # int64 (256,)


def class_indices(num_classes: int) -> LabelMap:
    """Return the map of masks that hold class indices, 0 to num_classes - 1, and IGNORE_INDEX."""
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
    if values.dtype == np.uint8:
        return values
    if values.max() > 255:
        raise InvalidMask(f"holds 16-bit values up to {values.max()}; write class numbers from 0 to 254")
    return values.astype(np.uint8)


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
        hint = ""
        if (width, height) == (mask_height, mask_width):
            hint = "; one of them is rotated: store the image upright, EXIF orientation is ignored"
        raise InvalidMask(f"the image has {width} x {height} pixels, its mask {mask_width} x {mask_height}{hint}")


def scan(root: str, splits: Sequence[Sequence[Pair]], count: int, allow_void: bool = False) -> list[list[MaskStats]]:
    """Count the values in some masks of each split, before a run.

    Args:
        root: folder that the paths are relative to.
        splits: the pairs of each split.
        count: number of masks per split, evenly spread. Damaged ones are left out: the stream handles them.
        allow_void: accept masks that hold nothing but 0 and 255, where 255 really means ignored pixels.

    Returns:
        For each split, the counts of its masks.

    Raises:
        UserError: a file is not a mask, differs in size from its image, or is black and white; or none can be read.
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
    if not allow_void:
        _refuse_black_and_white(stats)
    return stats


def validate(stats: Sequence[MaskStats], label_map: LabelMap, num_classes: int) -> np.ndarray:
    """Count the pixels of every class and, last, the ignored ones.

    Returns:
        int64 (num_classes + 1,).

    Raises:
        UserError: a mask holds values that are not legal; the message names the file and the values.
    """
    total = np.zeros(256, np.int64)
    for mask_stats in stats:
        try:
            check_values(np.flatnonzero(mask_stats.counts), label_map)
        except InvalidMask as error:
            raise UserError(f"{mask_stats.path}: {error}") from None
        np.add.at(total, label_map.table, mask_stats.counts)
    return np.append(total[:num_classes], total[IGNORE_INDEX])


def unique_values(splits: Sequence[Sequence[MaskStats]]) -> list[int]:
    """Return the sorted values that occur in any mask."""
    occurs = np.zeros(256, bool)
    for stats in splits:
        for mask_stats in stats:
            occurs |= mask_stats.counts > 0
    return np.flatnonzero(occurs).tolist()


def _scan_pair(root: str, pair: Pair) -> MaskStats | None:
    """Count the values of a mask; None if it or its image is damaged. Raises UserError if they do not match."""
    image_path, mask_path = (os.path.join(root, path) for path in pair)
    try:
        values = read_values(mask_path)
        with images.open_image(image_path) as image:
            check_sizes(image.size, values.shape[::-1])
    except InvalidMask as error:
        raise UserError(f"{mask_path}: {error}") from None
    except BadSample:
        return None
    counts = cv2.calcHist([values], [0], None, [256], [0, 256])  # (256, 1), in OpenCV 5 (256,)
    return MaskStats(mask_path, counts.ravel().astype(np.int64))


def _refuse_black_and_white(splits: Sequence[Sequence[MaskStats]]) -> None:
    """Raise UserError for a mask, or a whole set, that holds nothing but 0 and 255."""
    whole_set = unique_values(splits) == BLACK_AND_WHITE
    for mask_stats in (mask_stats for stats in splits for mask_stats in stats):
        if whole_set or unique_values([[mask_stats]]) == BLACK_AND_WHITE:
            raise UserError(
                f"{mask_stats.path}: holds nothing but 0 and 255, as black-and-white masks do; but 255 stands for "
                "ignored pixels: write 1 instead of it, or pass -o data.void_masks=true if they are to be ignored"
            )
