"""Layouts of data sets without lists: their splits, images with masks, and what only looks like classes.

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
from zoo.data.formats.file_names import SPLIT_NAMES, WORD, split_of
from zoo.data.formats.lists import MAX_DIGITS, class_folders, walk
from zoo.data.formats.splits import class_split, find_split, name_splits
from zoo.data.transforms.geometry import Size

MASK_WORDS = re.compile(
    WORD.format("masks?|ann|annots?|annotations?|labels?|gts?|(?:ground)?truths?|seg|segmentations?")
)
MASK_SUFFIX = re.compile(r"[-_. ](?:masks?|labels?|seg|segmentation|gt|annotation)$", re.IGNORECASE)
COPY = re.compile(r" ?\(\d+\)$| - Copy.*$| copy( \d+)?$", re.IGNORECASE)
DIGITS = "0123456789"
MAX_SIBLINGS = 12  # folders that are compared with each other; more are classes
LOOKED_AT = 3  # images of a folder whose pixels are looked at
LOSSY = (".jpg", ".jpeg", ".jpe", ".jfif", ".webp")
FLAT, MUCH = 0.8, 0.1  # shares of pixels that have the color of their neighbor
SAME = 0.9  # share of names that two folders have in common, if they are pairs
MIN_NAMES, MIN_FRAMES, GIFS = 3, 8, 40
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
    end = min(end, min(map(len, names)) - start)  # what a short name begins with may be what it ends with
    return [os.path.join(os.path.dirname(stem), name[start : len(name) - end]) for stem, name in zip(stems, names)]


def _beginning(names: Sequence[str]) -> int:
    """Return the length of what all names begin with, without digits at its end."""
    pairs = zip(min(names), max(names))
    return len("".join(first for first, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)).rstrip(DIGITS))


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
    """Say what class folders look like in place of classes; "" if they look like classes."""
    place, start = os.path.normpath(os.path.join(root, parent)), len(parent) + bool(parent)
    below = defaultdict[str, set[str]](set)
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
    first_ones = {*sorted(below)[:MAX_SIBLINGS]}
    if clip := _frames([path for path in paths if path[start:].partition("/")[0] in first_ones], start):
        path, folder, count = clip
        return (
            f"{os.path.join(root, path)} and others are numbered in rows, as frames of clips are; for clips, give each "
            f"a folder and write train.list with a line `{folder} {count} 0` for each (folder, number of frames, class)"
        )
    if few:
        files = defaultdict[str, list[str]](list)
        for path in paths:
            files[path[start:].partition("/")[0]].append(os.path.join(root, path))
        if paths[0].lower().endswith(images.EXTENSIONS) and (pairs := _find_pairs(files)):
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
    rows = defaultdict[str, list[int]](list)
    for name in bare(sorted(names)):
        start = name.rstrip(DIGITS)
        rows[start].append(int(name[len(start) :][:MAX_DIGITS] or -1))
    are_rows = all(min(row) >= 0 and max(row) - min(row) < 3 * len(row) for row in rows.values())
    return len(names) == 1 or (are_rows and 2 * len(rows) <= len(names))


def _frames(paths: Sequence[str], start: int) -> tuple[str, str, int] | None:
    """Return a frame of a clip, its folder and the number of frames, if most files are numbered so."""
    clips, classes = defaultdict[str, dict[int, str]](dict), set[str]()
    for path in paths:
        stem, _ = os.path.splitext(path)
        clip = stem.rstrip(DIGITS)
        clips[clip][int(stem[len(clip) :][:MAX_DIGITS] or 0)] = path
        classes.add(path[start:].partition("/")[0])
    is_deep = any(clip.count("/", start) > 1 for clip in clips)
    least, usual = (
        (MIN_NAMES, len(classes)) if is_deep else (MIN_FRAMES, 2 * len(classes))
    )  # of images that are no frames
    rows = [
        clip
        for clip, frames in clips.items()
        if len(frames) >= least and len(set(np.diff(sorted(frames)).tolist())) == 1
    ]
    if 2 * len(rows) <= len(clips) or len(clips) <= usual:
        return None
    frames = clips[rows[0]]
    return frames[min(frames)], os.path.dirname(rows[0]) if is_deep else rows[0].rstrip("-_. "), len(frames)


def notes(root: str, paths: Sequence[str]) -> list[str]:
    """Return lines on class folders: splits whose names are others than train and val, and what may be no classes."""
    folders = {split: class_split(root, split) for split in SPLIT_NAMES}
    doubt = doubts(root, folders["train"] or "", paths)
    return [*name_splits(folders), *([f"warning: these may be no classes: {doubt}"] if doubt else [])]
