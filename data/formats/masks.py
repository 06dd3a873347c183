"""Masks: PNG files that hold a number for every pixel; what the numbers mean, and a look at some before a run."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import cv2
import numpy as np

from data.errors import BadSample, UserError
from data.formats import images
from data.formats.palette import IGNORE_INDEX, LABELS, TRAIN_IDS

Pair = tuple[str, str]  # paths of a picture and its mask, relative to the root

READABLE = ("L", "I;16B", "P", "P;1", "P;2", "P;4")  # Pillow's names of PNG kinds: grey of 8 and 16 bits, palettes
BLACK_AND_WHITE = [0, IGNORE_INDEX]
READERS = 4  # threads that look at masks
COLUMNS = 100  # width of the table of classes


class InvalidMask(BadSample):
    """A file that can be read and is no mask of this set; so are others like it, most likely."""


class LabelMap(NamedTuple):
    """What the values of masks mean: table uint8 (256,) -> class or 255, legal uint8 (256,) 1 where they may occur."""

    table: np.ndarray
    legal: np.ndarray
    values: str  # the legal ones, in words


class MaskStats(NamedTuple):
    """One mask as found: how many pixels hold each of the 256 values, int64 (256,)."""

    path: str
    counts: np.ndarray


def plain(classes: int) -> LabelMap:
    """Masks that hold classes: 0 to K - 1, and 255."""
    table = np.full(256, IGNORE_INDEX, np.uint8)
    table[:classes] = np.arange(classes)
    legal = (np.arange(256) < classes) | (np.arange(256) == IGNORE_INDEX)
    return LabelMap(
        table,
        legal.astype(np.uint8),
        f"0 to {classes - 1} for the {classes} classes and {IGNORE_INDEX} for pixels that do not count",
    )


def label_ids() -> LabelMap:
    """Masks that hold Cityscapes' ids."""
    last = max(label.id for label in LABELS)
    return LabelMap(
        TRAIN_IDS,
        (np.arange(256) <= last).astype(np.uint8),
        f"Cityscapes' ids 0 to {last} (for masks with "
        "train ids, 0 to 18 and 255, set data.labels to labelTrainIds and name the files so)",
    )


def read(path: str) -> np.ndarray:
    """The values of a mask, uint8 (H, W): grey levels or, of a palette, the indices. Raises BadSample, InvalidMask."""
    with images.open_image(path) as image:
        if image.format != "PNG":
            raise InvalidMask(f"a {image.format} file; masks are PNG files, because other kinds may change the values")
        if image.tile[0][3] not in READABLE:
            # Of 1, 2 or 4 bits, some programs mean the numbers and others grey levels: 1 is class 1, or white, 255.
            what = "grey of less than 8 bits" if image.mode in ("1", "L") else f"colours (mode {image.mode})"
            raise InvalidMask(
                f"holds {what}, but a mask holds one class number for every pixel; write the numbers as an "
                "8-bit grey PNG, or as a PNG with a palette whose indices they are"
            )
        values = np.asarray(image)
    if values.max() > 255:
        raise InvalidMask(f"holds values of 16 bits up to {values.max()}; classes go to 254")
    return values.astype(np.uint8)


def labels(path: str, code: LabelMap) -> np.ndarray:
    """The class of every pixel, uint8 (H, W), 255 where there is none. Raises BadSample, InvalidMask."""
    values = read(path)
    if not cv2.LUT(values, code.legal).all():
        refuse(np.unique(values), code)
    return cv2.LUT(values, code.table)


def refuse(values: Sequence[int], code: LabelMap) -> None:
    """Raises InvalidMask if some values are not legal, naming them."""
    strange = [int(value) for value in values if not code.legal[value]]
    if strange:
        named = ", ".join(map(str, strange[:10])) + (" ..." if len(strange) > 10 else "")
        raise InvalidMask(f"holds the value{'s' * (len(strange) > 1)} {named}; legal are {code.values}")


def same_size(picture: tuple[int, int], mask: tuple[int, int]) -> None:
    """Raises InvalidMask unless picture and mask, (width, height), lie on each other."""
    if picture != mask:
        turned = (
            "; one is turned against the other: store the picture upright, a mark of rotation is not obeyed"
            if picture == mask[::-1]
            else ""
        )
        raise InvalidMask(f"the picture has {picture[0]} x {picture[1]} pixels, its mask {mask[0]} x {mask[1]}{turned}")


def scan(root: str, splits: Sequence[Sequence[Pair]], count: int, void: bool = False) -> list[list[MaskStats]]:
    """`count` evenly spread masks of each split, without those that are damaged (the stream deals with them).

    Raises UserError, naming the file, for masks that are none, of another size than their picture, or black and white,
    unless `void` says that 255 really means pixels that do not count.
    """
    found = []
    with ThreadPoolExecutor(READERS) as pool:
        for pairs in splits:
            spread = np.linspace(0, len(pairs) - 1, min(count, len(pairs))).round().astype(int)
            looks = [look for look in pool.map(lambda index: _look(root, pairs[index]), spread) if look]
            if not looks:
                raise UserError(
                    f"{os.path.join(root, pairs[0][1])}: neither this mask with its picture nor one of the "
                    f"{len(spread) - 1} others looked at can be read"
                )
            found.append(looks)
    looks = [look for looks in found for look in looks]
    white = [look for look in looks if values_of([looks]) == BLACK_AND_WHITE or values_of([[look]]) == BLACK_AND_WHITE]
    if white and not void:
        raise UserError(
            f"{white[0].path}: holds nothing but 0 and 255, as black-and-white masks do; but 255 stands "
            "for pixels that do not count: write 1 instead of it, or say -o data.void_masks=true if it "
            "does mean them"
        )
    return found


def validate(looks: Sequence[MaskStats], code: LabelMap, classes: int) -> np.ndarray:
    """Pixels of every class and, last, of none: int64 (K + 1,). Raises UserError naming the file and its values."""
    total = np.zeros(256, np.int64)
    for look in looks:
        try:
            refuse(np.flatnonzero(look.counts), code)
        except InvalidMask as error:
            raise UserError(f"{look.path}: {error}") from None
        np.add.at(total, code.table, look.counts)
    return np.append(total[:classes], total[IGNORE_INDEX])


def values_of(splits: Sequence[Sequence[MaskStats]]) -> list[int]:
    """Every value that occurs."""
    return np.flatnonzero(sum(look.counts for looks in splits for look in looks)).tolist()


def describe(
    classes: Sequence[str], splits: Sequence[Sequence[MaskStats]], counts: Sequence[np.ndarray]
) -> tuple[str, ...]:
    """Lines for the user: the share of every class in the training and in the validation masks, counts as judged."""
    shares = [100 * pixels / pixels.sum() for pixels in counts]
    names = tuple(classes) + ("(ignored)",)
    width = max(map(len, names))
    cells = [f"  {name:<{width}} {_percent(train)} {_percent(val)}" for name, (train, val) in zip(names, zip(*shares))]
    per_line = max(1, COLUMNS // len(cells[0]))
    lines = ["".join(cells[start : start + per_line]) for start in range(0, len(cells), per_line)]
    lines.insert(0, f"share of the pixels in %, in {len(splits[0])} training and {len(splits[1])} validation masks:")
    for title, split in zip(("training", "validation"), counts):
        unseen = [name for name, pixels in zip(classes, split) if not pixels]
        if unseen:
            lines.append(f"warning: not in these {title} masks: {', '.join(unseen)}")
    return tuple(lines)


def _percent(share: float) -> str:
    return f"{share:6.2f}" if share else "     -"


def _look(root: str, pair: Pair) -> MaskStats | None:
    """None if a file is damaged. Raises UserError if both can be read and do not fit."""
    picture, mask = (os.path.join(root, name) for name in pair)
    try:
        values = read(mask)
        with images.open_image(picture) as image:
            same_size(image.size, values.shape[::-1])
    except InvalidMask as error:
        raise UserError(f"{mask}: {error}") from None
    except BadSample:
        return None
    return MaskStats(mask, np.bincount(values.ravel(), minlength=256))
