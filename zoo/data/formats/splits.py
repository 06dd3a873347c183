"""The folders of splits: those named train and val, and others whose names say so by a word."""

import os
from collections.abc import Mapping, Sequence

from zoo.data import sources
from zoo.data.errors import Option, Part
from zoo.data.formats.file_names import SPLIT_NAMES, TEST, split_of
from zoo.data.formats.lists import class_folders, walk


def split_name(root: str, split: str, layout: str = "{}", *others: str) -> str | None:
    """Return the name that the folder of a split has; None without such a folder.

    It is train; val, valid or validation; else the one that says so by a word, as in training_set, where there is one.

    Args:
        others: layouts of folders that must exist beside one that is found by a word.
    """
    names = SPLIT_NAMES[split]
    exact = next((name for name in names if sources.is_folder(os.path.join(root, layout.format(name)))), None)
    return exact or find_split(root, split, [layout, *others])


def class_split(root: str, split: str) -> str | None:
    """Return the folder in root that holds the class folders of a split; None without such a folder.

    One that is found by a word, such as test, is that of the other split's classes, too.
    """
    name = split_name(root, split)
    if name is None or name in SPLIT_NAMES[split]:
        return name and without_wrapper(root, name)
    other = split_name(root, next(each for each in SPLIT_NAMES if each != split))
    found = [without_wrapper(root, each) for each in (name, other) if each]
    first, second = (set(class_folders(root, each)) for each in (found[0], found[-1]))
    return found[0] if len(found) == 2 and first & second else None


def find_split(root: str, split: str, layouts: Sequence[str]) -> str | None:
    """Return the one folder that is a split by the words of its name; for `val` one of `test`, where there is no other.

    Args:
        layouts: of its folders, such as images/{}, all of which must exist.
    """
    parent = os.path.dirname(layouts[0].partition("{}")[0])
    folders = [
        name
        for name in class_folders(root, parent)
        if all(sources.is_folder(os.path.join(root, layout.format(name))) for layout in layouts)
    ]
    for wanted in ("train",) if split == "train" else ("val", TEST):
        named = [name for name in folders if split_of(name) == wanted]
        if named:
            return named[0] if len(named) == 1 else None
    return None


def without_wrapper(root: str, folder: str) -> str:
    """Return the folder below one that holds nothing but another of the same split, as in seg_train/seg_train."""
    below, (_, files) = class_folders(root, folder), next(walk(os.path.join(root, folder)), ("", []))
    if len(below) != 1 or files or not split_of(below[0]) or split_of(below[0]) != split_of(os.path.basename(folder)):
        return folder
    return without_wrapper(root, os.path.join(folder, below[0]))


def name_splits(folders: Mapping[str, str | None]) -> list[str]:
    """Return a line on splits whose folders have other names than train and val."""
    named = [f"{split} is {name}/" for split, name in folders.items() if name and name not in SPLIT_NAMES[split]]
    return [f"splits by the names of their folders: {', '.join(named)}"] * bool(named)


def splits_below(root: str) -> tuple[Part, ...]:
    """Return a question for the folder in root that has splits, where root is one level too high; "" if none has."""
    inner = next(
        (path for name in class_folders(root, "") if class_split(path := os.path.join(root, name), "train")), ""
    )
    return ("; did you mean ", Option("data.root", inner), "?") if inner else ()
