"""What folders show of a data set without lists: its splits, images with masks, and what only looks like classes.

Names decide little. Folders are splits if the same folders are below them, and images with masks if their files have
the same names and those of one show areas of one color.
"""

import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations, permutations, takewhile

import numpy as np

from zoo.data.errors import BadSample
from zoo.data.formats import images
from zoo.data.formats.lists import MAX_DIGITS, class_folders, walk
from zoo.data.formats.splits import SPLIT_NAMES, WORD, class_split, find_split, split_of
from zoo.data.transforms.geometry import Size

MASK_WORDS = re.compile(
    WORD.format("masks?|ann|annots?|annotations?|labels?|gts?|(?:ground)?truths?|seg|segmentations?")
)
MASK_SUFFIX = re.compile(r"[-_. ](?:masks?|labels?|seg|segmentation|gt|annotation)$", re.IGNORECASE)
COPY = re.compile(r" ?\(\d+\)$| - Copy.*$| copy( \d+)?$", re.IGNORECASE)
NUMBER = re.compile(r"(\d+)$")
MAX_SIBLINGS = 12  # folders that are compared with each other; more are classes
LOOKED_AT = 3  # images of a folder whose pixels are looked at
LOSSY = (".jpg", ".jpeg", ".jpe", ".jfif", ".webp")
FLAT, MUCH = 0.8, 0.1  # shares of pixels that have the color of their neighbor
SAME = 0.9  # share of names that two folders have in common, if they are pairs
MIN_NAMES, GIFS = 3, 40
NO_CLASSES = ("train", "training", "val", "valid", "validation", "test", "testing", "images")
GIF_FRAME = re.compile(rb"\0\x21\xf9\x04.{4}\0[\x2c\x21]", re.DOTALL)  # a graphic control and what it is for


def scene_folders(root: str) -> tuple[str, str] | None:
    """Return the folders of images and of their masks, with {} for the split; None if they are not certain.

    Both are the same where a mask lies beside its image: 1.jpg, 1_mask.png.
    """
    train = find_split(root, "train", ["{}"])
    pairs = _find_pairs(_image_folders(root))
    of_train = [pair for pair in pairs if split_of(pair[0]) == "train"]
    if len(of_train) == 1:  # train_images, train_masks
        image, mask = (re.sub("train(?!ing)", "{}", name, count=1) for name in of_train[0])
        return image, mask
    if len(pairs) == 1:
        image, mask = (f"{folder}/{{}}" for folder in pairs[0])
        return (image, mask) if find_split(root, "train", [image, mask]) else pairs[0]
    if train and len(below := _find_pairs(_image_folders(os.path.join(root, train)))) == 1:
        return f"{{}}/{below[0][0]}", f"{{}}/{below[0][1]}"
    for folder, place in ((train, "{}"), ("", os.curdir)):
        if folder is not None and not pairs and _masks_beside(os.path.join(root, folder)):
            return place, place
    return None


def _masks_beside(folder: str) -> bool:
    """Return whether every image in a folder has a mask beside it."""
    _, files = next(walk(folder), ("", []))
    stems = [os.path.splitext(file)[0] for file in files if file.lower().endswith(images.EXTENSIONS)]
    masks = {stem for stem in stems if MASK_SUFFIX.search(stem)}
    return bool(masks) and not unmatched([stem for stem in stems if stem not in masks], sorted(masks))


def unmatched(first: Sequence[str], second: Sequence[str]) -> set[str]:
    """Return names of one list that the other one lacks, leaving aside what all of a list begin and end with."""
    return set(bare(first)) - set(bare(second))


def bare(stems: Sequence[str]) -> list[str]:
    """Return paths without what all names of files begin and end with, digits excepted: 01, 02 of img_01, img_02."""
    names = [os.path.basename(stem) for stem in stems]
    if len(set(names)) < 2:
        return list(stems)
    start, end = _beginning(names), _beginning([name[::-1] for name in names])
    return [os.path.join(os.path.dirname(stem), name[start : len(name) - end]) for stem, name in zip(stems, names)]


def _beginning(names: Sequence[str]) -> int:
    """Return the length of what all names begin with, without digits at its end."""
    pairs = zip(min(names), max(names))
    return len("".join(first for first, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)).rstrip("0123456789"))


def _find_pairs(folders: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Find folders of images and of their masks among siblings.

    Args:
        folders: paths of the images below each, by its name.
    """
    if not 2 <= len(folders) <= MAX_SIBLINGS:
        return []
    by_name = {}
    for folder, paths in folders.items():
        stems = [os.path.splitext(path.rpartition(f"/{folder}/")[2])[0] for path in paths]
        by_name[folder] = dict(zip(bare(stems), paths))
    flatness = cache(lambda folder: _flatness(_some(folders[folder])))
    pairs = []
    for image, mask in permutations(folders, 2):
        common = sorted(by_name[image].keys() & by_name[mask].keys())
        is_named = bool(_is_mask(mask) and not _is_mask(image))
        if 2 * len(common) <= max(len(by_name[image]), len(by_name[mask])) or split_of(image) != split_of(mask):
            continue
        if not is_named and by_name[mask][common[0]].lower().endswith(LOSSY):  # photos are not decoded for this
            continue
        is_shown = flatness(mask) > FLAT and (
            flatness(image) < flatness(mask) - MUCH
            and all(_size(by_name[image][name]) == _size(by_name[mask][name]) for name in _some(common))
        )
        if is_shown or (is_named and not flatness(mask) <= FLAT):  # NaN where no file can be read
            pairs.append((image, mask))
    return pairs


def _image_folders(parent: str) -> dict[str, list[str]]:
    """Return the paths of the images below each folder, by its name."""
    return {
        name: [
            os.path.join(path, file)
            for path, files in walk(os.path.join(parent, name))
            for file in files
            if file.lower().endswith(images.EXTENSIONS)
        ]
        for name in class_folders(parent, "")
    }


def _is_mask(name: str) -> bool:
    return MASK_WORDS.search(name.lower()) is not None


def _some(paths: Sequence[str]) -> Sequence[str]:
    return paths[:: -(-len(paths) // LOOKED_AT) or 1]


def _size(path: str) -> Size | None:
    with suppress(BadSample):
        return images.read(path).stored
    return None


def _flatness(paths: Sequence[str]) -> float:
    """Return the median share of pixels that have the color of their left neighbor; NaN if no image can be read."""
    shares = []
    for path in paths:
        with suppress(BadSample):
            pixels = images.decode_stored(images.read(path))
            shares.append((pixels[:, 1:] == pixels[:, :-1]).all(axis=2).mean() if pixels.shape[1] > 1 else 0)
    return float(np.median(shares)) if shares else math.nan


def count_animations(paths: Sequence[str]) -> tuple[int, int]:
    """Return how many of some GIF files have more than one frame, and how many were looked at."""
    shown = paths[:: -(-len(paths) // GIFS) or 1]
    count = 0
    for path in shown:
        with suppress(BadSample):
            count += len(GIF_FRAME.findall(images.read_content(path))) > 1
    return count, len(shown)


def doubts(root: str, parent: str, paths: Sequence[str]) -> str:
    """Say what class folders look like in place of classes; "" if they look like classes.

    Args:
        root: of the data set.
        parent: of the class folders, "" for root.
        paths: of all samples, relative to root.
    """
    place, start, below = (
        os.path.normpath(os.path.join(root, parent)),
        len(parent) + bool(parent),
        defaultdict[str, set[str]](set),
    )
    for path in paths:
        name, _, rest = path[start:].partition("/")
        below[name].add(os.path.dirname(rest))
    odd = [name for name in below if name.lower() in NO_CLASSES]
    if odd or {"train"} < {split_of(name) for name in below} - {None}:
        names = ", ".join(sorted(odd or [name for name in below if split_of(name)]))
        return f"{names} would be a class; splits are named train and val, folders of scenes images and masks"
    if copies := [name for name in below if COPY.sub("", name) != name and COPY.sub("", name) in below]:
        return f"{copies[0]} in {place} looks like a copy of {COPY.sub('', copies[0])}"
    few = len(below) <= MAX_SIBLINGS
    for first, second in combinations(sorted(below), 2) if few else ():
        if common := _same_folders(below[first], below[second]):
            return (
                f"{first} and {second} in {place} hold folders of the same names ({', '.join(common)}), as splits do; "
                "these are named train and val, and hold a folder per class"
            )
    if frames := _frames([path for path in paths if "/" in path[start:].partition("/")[2]]):
        folder, count = frames
        return (
            f"{os.path.join(root, folder)} and others hold numbered images, as frames of a clip are named; for clips, "
            f"write train.list with a line `{folder} {count} 0` for each (folder, number of frames, class)"
        )
    if few:
        files = defaultdict[str, list[str]](list)
        for path in paths:
            files[path[start:].partition("/")[0]].append(os.path.join(root, path))
        if pairs := _find_pairs(files):
            shown = " and ".join(pairs[0])
            return f"{shown} in {place} look like images and their masks; keep these two, named images and masks"
        if named := _same_names(files):
            first, second, name = named
            return f"{first} and {second} in {place} hold files of the same names, such as {name}, as pairs do"
    return ""


def _same_folders(first: set[str], second: set[str]) -> list[str]:
    """Return some folders that are below both, if most are, and their names do not just count."""
    tops = [{each.partition("/")[0] for each in folders} - {""} for folders in (first, second)]
    common = tops[0] & tops[1]
    return sorted(common)[:3] if 2 * len(common) > max(map(len, tops)) and not _is_count(common) else []


def _same_names(files: Mapping[str, Sequence[str]]) -> tuple[str, str, str] | None:
    """Return two class folders with files of the same names that do not just count, and such a name."""
    stems = {name: {os.path.splitext(os.path.basename(path))[0] for path in paths} for name, paths in files.items()}
    for first, second in combinations(stems, 2):
        common = stems[first] & stems[second]
        most = max(len(stems[first]), len(stems[second]))
        if len(common) >= max(MIN_NAMES, SAME * most) and not _is_count(common):
            return first, second, min(common)
    return None


def _is_count(names: set[str]) -> bool:
    """Return whether names are numbers of a row, as those of files and folders of any class may be."""
    numbers = sorted(int(name) for name in bare(sorted(names)) if name.isdecimal() and len(name) < MAX_DIGITS)
    return len(names) == 1 or (len(numbers) == len(names) and numbers[-1] - numbers[0] < 3 * len(numbers))


def _frames(paths: Sequence[str]) -> tuple[str, int] | None:
    """Return a folder of images whose numbers are those of frames of a clip, and how many, if most folders are so.

    Args:
        paths: of samples below folders in those of classes.
    """
    folders = defaultdict[str, list[int]](list)
    for path in paths:
        folder, name = os.path.split(path)
        number = NUMBER.search(os.path.splitext(name)[0])
        folders[folder].append(int(number[1][:MAX_DIGITS]) if number else 0)
    rows = [
        folder
        for folder, numbers in folders.items()
        if len(numbers) >= MIN_NAMES and len(set(np.diff(sorted(numbers)).tolist())) == 1
    ]
    is_many = 2 * len(rows) > len(folders) and len(set(map(os.path.basename, folders))) > 1
    return (rows[0], len(folders[rows[0]])) if is_many else None


def notes(root: str, paths: Sequence[str]) -> list[str]:
    """Return lines on class folders: splits whose names are others than train and val, and what may be no classes.

    Args:
        root: of the data set.
        paths: of the training samples, relative to root.
    """
    folders = {split: class_split(root, split) for split in SPLIT_NAMES}
    named = [f"{split} is {name}/" for split, name in folders.items() if name and name not in SPLIT_NAMES[split]]
    doubt = doubts(root, folders["train"] or "", paths)
    return [f"splits by the names of their folders: {', '.join(named)}"] * bool(named) + [
        f"warning: these may be no classes: {doubt}"
    ] * bool(doubt)
