"""Lists of samples: text files with a path and a label per line, or one folder per class; and files of class names."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from data.errors import UserError, similar_name

VIDEO_EXTENSIONS = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v")
MAX_CLASSES = 1_000_000  # that are named from a list; face sets, which may have more, are read elsewhere
MAX_QUOTED = 20  # digits of a label in a message
WNID = re.compile(r"n\d{8}(\s|$)")  # WordNet id, which names ImageNet's classes and their folders


@dataclass(frozen=True)
class LabeledPath:
    """A labeled file, or a labeled folder of `frames` numbered images. path is relative to the data set's root."""

    path: str
    label: int
    frames: int | None = None


class ClassNames(NamedTuple):
    """Contents of a file of class names, by label: names to display, and names of class folders where it has them."""

    names: tuple[str, ...]
    folders: tuple[str, ...]


def read_list(path: str, suffix: str = "", folders: bool = True) -> list[LabeledPath]:
    """Read lines `relpath label` (files) or, if `folders`, `relpath num_frames label`; paths may contain blanks.

    A list is one of frame folders if every line ends in two integers.

    Args:
        path: the list.
        suffix: appended to every path of the list.
        folders: whether the list may name folders of numbered frames.

    Raises:
        UserError: the list cannot be read or a line is malformed; the message names file and line.
    """
    line_format = "`path label` or `path num_frames label`" if folders else "`path label`"
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = {number: line.strip() for number, line in enumerate(file, 1) if line.strip()}
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read this list: {error}") from None
    if not lines:
        raise UserError(f"{path}: the list is empty; a line reads {line_format}, the path relative to data.root")
    has_frames = folders and _lists_frame_folders(path, lines, suffix)
    columns = 2 if has_frames else 1
    entries = []
    for number, line in lines.items():
        # Split from the right: folder names of Kinetics classes may contain blanks.
        words = line.lstrip("\ufeff").strip().rsplit(None, columns)
        if len(words) <= columns or not words[-1].isdecimal():
            raise UserError(f"{path}:{number}: expected {line_format} with label an integer from 0, got {line!r}")
        entries.append(LabeledPath(words[0] + suffix, int(words[-1]), int(words[1]) if has_frames else None))
    return entries


def _lists_frame_folders(path: str, lines: dict[int, str], suffix: str) -> bool:
    """Return whether all lines, by number, end in two integers. Raises UserError if only some of them do."""
    has_frames = {}
    for number, line in lines.items():
        words = line.split()
        has_frames[number] = len(words) >= 3 and words[-2].isdecimal() and words[-1].isdecimal()
    if all(has_frames.values()):
        return True
    if any(has_frames.values()) and not suffix:
        minority = sum(has_frames.values()) * 2 <= len(lines)
        number = next(number for number, value in has_frames.items() if value == minority)
        raise UserError(
            f"{path}:{number}: {lines[number]!r}: some lines of this list end in `num_frames label` and others in a "
            "label alone; write all lines in the same format"
        )
    return False


def read_folders(
    root: str, split: str, classes: Sequence[str], extensions: tuple[str, ...] = VIDEO_EXTENSIONS
) -> list[LabeledPath]:
    """List every file with one of the extensions below <root>/<split>/<class>/, labeled by its place in `classes`.

    Folders and files come sorted by name; hidden ones are skipped.

    Raises:
        UserError: a class folder is not in `classes`.
    """
    label_of: dict[str, int] = {}
    for label, name in enumerate(classes):
        label_of[name] = label
        label_of.setdefault(normalize_name(name), label)
    entries = []
    for name in class_folders(root, split):
        class_label = label_of.get(name, label_of.get(normalize_name(name)))
        if class_label is None:
            raise UserError(
                f"{os.path.join(root, split, name)}: this folder is none of the {len(classes)} classes; "
                "rename it, or give the class names with -o data.names=FILE (one per line)"
                + similar_name(name, classes)
            )
        for folder, subfolders, files in os.walk(os.path.join(root, split, name)):
            subfolders[:] = sorted(subfolder for subfolder in subfolders if not subfolder.startswith("."))
            relative = os.path.relpath(folder, root)
            entries += [
                LabeledPath(os.path.join(relative, file), class_label)
                for file in sorted(files)
                if file.lower().endswith(extensions) and not file.startswith(".")
            ]
    return entries


def class_folders(root: str, split: str) -> list[str]:
    """Return the sorted names of the visible folders in <root>/<split>; none if that is not a folder."""
    folder = os.path.join(root, split)
    if not os.path.isdir(folder):
        return []
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def class_names_from_folders(entries: Sequence[LabeledPath]) -> tuple[str, ...]:
    """Name classes by their folders if every label of a list has one folder of its own, else `class 7`."""
    folders: dict[int, set[str]] = {}
    for entry in entries:
        folders.setdefault(entry.label, set()).add(os.path.basename(os.path.dirname(entry.path)))
    count = max(folders) + 1
    if count > MAX_CLASSES:
        entry = max(entries, key=lambda entry: entry.label)
        raise UserError(
            f"{entry.path}: its label {str(count - 1)[:MAX_QUOTED]} is beyond {MAX_CLASSES} classes; correct the list"
        )
    names = [next(iter(folders[label])) if len(folders.get(label, ())) == 1 else "" for label in range(count)]
    if len(set(names) - {""}) < len(folders):
        names = [""] * count
    return tuple(name or f"class {label}" for label, name in enumerate(names))


def normalize_name(name: str) -> str:
    """Write a class name as mit-han-lab names folders: without quotes and brackets, blanks replaced by underscores."""
    return "".join(letter for letter in name if letter not in "\"'()").replace(" ", "_")


def read_names(path: str) -> tuple[str, ...]:
    """Read class names, one per line in the order of the labels, or lines `label name` in any order.

    Raises:
        UserError: the file cannot be read or is empty.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            names = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read the class names: {error}") from None
    if not names:
        raise UserError(f"{path}: no class names in this file; write one per line, in the order of the labels")
    pairs = [name.split(None, 1) for name in names]
    numbered = all(len(pair) == 2 and pair[0].isdecimal() for pair in pairs)
    if numbered and sorted(int(pair[0]) for pair in pairs) == list(range(len(pairs))):
        names = [name for _, name in sorted((int(number), name) for number, name in pairs)]
    return tuple(names)


def read_classes(path: str) -> ClassNames:
    """Read class names as `read_names` does, also with WordNet ids in front (`n01440764 tench`), or from JSON.

    JSON may hold a list of names, {"name": label}, {"label": name} or, as in torchvision and Keras,
    {"label": [folder, name]}.

    Raises:
        UserError: the file cannot be read, or gives a folder for two labels.
    """
    rows = _json_names(path) if path.endswith(".json") else [[name] for name in read_names(path)]
    if not path.endswith(".json") and all(WNID.match(row[0]) for row in rows):
        rows = [row[0].split(None, 1) for row in rows]
    label_of: dict[str, int] = {}
    for label, row in enumerate(rows):
        if len(row) > 1 and label_of.setdefault(row[0], label) != label:
            raise UserError(f"{path}: {row[0]} is given for two labels, {label_of[row[0]]} and {label}; remove one")
    return ClassNames(tuple(row[-1] for row in rows), tuple(row[0] for row in rows))


def _json_names(path: str) -> list[list[str]]:
    """Read rows [name] or [folder, name], by label."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot read the class names: {error}") from None
    if isinstance(content, dict) and all(type(value) is int for value in content.values()):
        unique = len(set(content.values())) == len(content)
        content = {str(label): name for name, label in content.items()} if unique else {}
    if isinstance(content, dict) and set(content) == {str(label) for label in range(len(content))}:
        content = [content[str(label)] for label in range(len(content))]
    if not isinstance(content, list) or not content or not all(_is_json_name(entry) for entry in content):
        raise UserError(
            f'{path}: no class names in this file; it should hold {{"0": ["n01440764", "tench"], ...}}, '
            '{"0": "tench", ...}, {"tench": 0, ...} or ["tench", ...], with labels from 0 without a gap'
        )
    return [[entry] if isinstance(entry, str) else entry for entry in content]


def _is_json_name(entry: object) -> bool:
    """Return whether an entry is "name" or ["folder", "name"]."""
    return isinstance(entry, str) or (isinstance(entry, list) and list(map(type, entry)) == [str, str])
