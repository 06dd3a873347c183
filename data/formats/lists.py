"""Lists of samples as people have them: text files with a path and a label in a line, or a folder per class."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from data.errors import UserError

VIDEO_EXTENSIONS = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v")
WNID = re.compile(r"n\d{8}(\s|$)")  # how ImageNet calls its classes and their folders


@dataclass(frozen=True)
class Clip:
    """One labelled file, or a folder of `frames` numbered pictures. path is relative to the root."""

    path: str
    label: int
    frames: int | None = None


class Classes(NamedTuple):
    """What a file of class names says, by label: names to show and, where it gives them, names of folders."""

    names: tuple[str, ...]
    folders: tuple[str, ...]


def read_list(path: str, suffix: str = "", folders: bool = True) -> list[Clip]:
    """Read `relpath label` (files) or, if `folders`, `relpath num_frames label`; the path may hold blanks.

    A list is taken as folders of pictures if every line ends in two integers. `suffix` is put behind every path.
    Raises UserError naming file and line.
    """
    forms = "`path label` or `path num_frames label`" if folders else "`path label`"
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [(number, line.split()) for number, line in enumerate(file, 1) if line.strip()]
            file.seek(0)
            texts = dict(enumerate(file, 1))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read this list: {error}") from None
    if not lines:
        raise UserError(f"{path}: the list is empty; a line reads {forms}, the path relative to data.root")
    in_pictures = {
        number: folders and len(words) >= 3 and words[-2].isdecimal() and words[-1].isdecimal()
        for number, words in lines
    }
    pictures = all(in_pictures.values())
    if any(in_pictures.values()) and not pictures and not suffix:
        few = sum(in_pictures.values()) * 2 <= len(lines)
        number = next(number for number, value in in_pictures.items() if value == few)
        raise UserError(
            f"{path}:{number}: {texts[number].strip()!r}: some lines of this list end in "
            "`num_frames label` and others in a label alone; write all of them in one way"
        )
    clips = []
    for number, words in lines:
        numbers = 2 if pictures else 1
        if len(words) <= numbers or not words[-1].isdecimal():
            raise UserError(
                f"{path}:{number}: expected {forms} with label an integer from 0, got {texts[number].strip()!r}"
            )
        # Split from the right: folder names of Kinetics classes may hold blanks.
        name = texts[number].lstrip("\ufeff").strip().rsplit(None, numbers)[0]
        clips.append(Clip(name + suffix, int(words[-1]), int(words[-2]) if pictures else None))
    return clips


def read_folders(
    root: str, split: str, classes: Sequence[str], endings: tuple[str, ...] = VIDEO_EXTENSIONS
) -> list[Clip]:
    """Every file of these endings below <root>/<split>/<class>/, labelled by `classes`.

    Raises UserError for a folder not in them.
    """
    by_name: dict[str, int] = {}
    for label, name in enumerate(classes):
        by_name[name] = label
        by_name.setdefault(plain(name), label)
    clips = []
    for name in class_folders(root, split):
        label = by_name.get(name, by_name.get(plain(name)))
        if label is None:
            raise UserError(
                f"{os.path.join(root, split, name)}: this folder is none of the {len(classes)} classes; "
                "rename it, or give the class names with -o data.names=FILE (one per line)"
            )
        for folder, folders, files in os.walk(os.path.join(root, split, name)):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            below = os.path.relpath(folder, root)
            clips += [
                Clip(os.path.join(below, file), label)
                for file in sorted(files)
                if file.lower().endswith(endings) and not file.startswith(".")
            ]
    return clips


def class_folders(root: str, split: str) -> list[str]:
    folder = os.path.join(root, split)
    if not os.path.isdir(folder):
        return []
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def read_names(path: str) -> tuple[str, ...]:
    """Class names, one per line, line number (from 0) = label; `label name` lines are understood too."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            names = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read the class names: {error}") from None
    if not names:
        raise UserError(f"{path}: no class names in this file; write one per line, in the order of the labels")
    pairs = [name.split(None, 1) for name in names]
    if all(len(pair) == 2 and pair[0].isdecimal() for pair in pairs):
        if sorted(int(pair[0]) for pair in pairs) == list(range(len(pairs))):
            names = [name for _, name in sorted((int(number), name) for number, name in pairs)]
    return tuple(names)


def read_classes(path: str) -> Classes:
    """Class names as `read_names` takes them, behind WordNet ids (`n01440764 tench`), or in JSON.

    JSON: a list of names, {"name": label}, {"label": name} or, as torchvision and Keras have it,
    {"label": [folder, name]}.
    """
    if path.endswith(".json"):
        entries = _json_names(path)
    else:
        entries = read_names(path)
        if all(WNID.match(entry) for entry in entries):
            entries = tuple(entry.split(None, 1) for entry in entries)
    pairs = [[entry] if isinstance(entry, str) else entry for entry in entries]
    first: dict[str, int] = {}
    for label, pair in enumerate(pairs):
        if len(pair) > 1 and first.setdefault(pair[0], label) != label:
            raise UserError(f"{path}: {pair[0]} is given for two labels, {first[pair[0]]} and {label}")
    return Classes(tuple(pair[-1] for pair in pairs), tuple(pair[0] for pair in pairs))


def _json_names(path: str) -> tuple[Any, ...]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read the class names: {error}") from None
    if isinstance(found, dict) and all(type(value) is int for value in found.values()):
        found = {} if len(set(found.values())) < len(found) else {str(label): name for name, label in found.items()}
    if isinstance(found, dict) and set(found) == {str(label) for label in range(len(found))}:
        found = [found[str(label)] for label in range(len(found))]
    if (
        not isinstance(found, list)
        or not found
        or not all(
            isinstance(entry, str) or (isinstance(entry, list) and list(map(type, entry)) == [str, str])
            for entry in found
        )
    ):
        raise UserError(
            f'{path}: no class names in this file; it should hold {{"0": ["n01440764", "tench"], ...}}, '
            '{"0": "tench", ...}, {"tench": 0, ...} or ["tench", ...], the labels from 0 without a gap'
        )
    return tuple(found)


def class_names_from_folders(clips: Sequence[Clip]) -> tuple[str, ...]:
    """Names from the class folders of a list where every label has a folder of its own, else `class 7`."""
    folders: dict[int, set] = {}
    for clip in clips:
        folders.setdefault(clip.label, set()).add(os.path.basename(os.path.dirname(clip.path)))
    count = max(folders) + 1
    names = [next(iter(folders[label])) if len(folders.get(label, ())) == 1 else "" for label in range(count)]
    if len(set(names) - {""}) < len(folders):
        names = [""] * count
    return tuple(name or f"class {label}" for label, name in enumerate(names))


def plain(name: str) -> str:
    """A class name as mit-han-lab writes folders: quotes and brackets dropped, blanks to underscores."""
    return "".join(letter for letter in name if letter not in "\"'()").replace(" ", "_")
