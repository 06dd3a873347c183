"""Files of class names: one per line, with or without numbers or WordNet ids, or JSON."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular
from zoo.data.formats.lists import read_lines

IGNORED = "__ignore__"  # LabelMe's name for what is neither a class nor background: -1, the first line of its lists
NUMBERED = re.compile(r"(\d{1,9})(?:\s*([:;,=])\s*|\s+)(\S.*)")  # 0 road, 0: road
NUMBERED_BEHIND = re.compile(r"\S.*[:;,=]\s*\d{1,9}")  # road,0
COLORED = re.compile(r"(\d{1,3}[ ,;\t]+){3}\D")  # 64 128 64 Animal, of CamVid
WNID = re.compile(r"n\d{8}(\s|$)")  # WordNet id, which names ImageNet's classes and their folders
# Names of public sets, by data.name and number of classes, in the order of the labels. ImageNet's and Kinetics' are
# those of torchvision 0.29 (BSD-3), which corrects two names that ImageNet gives twice; ids are the sorted synsets of
# ILSVRC 2012. Something-Something's are the sorted templates of its V2.
OFFICIAL = {
    ("imagenet", 1000): "imagenet.txt",
    ("kinetics", 400): "kinetics400.txt",
    ("kinetics", 174): "something_something_v2.txt",
}
OFFICIAL_FOLDER = Path(__file__).parents[1] / "names"


class ClassNames(NamedTuple):
    """Contents of a file of class names, by label: names to display, and names of class folders where it has them."""

    names: tuple[str, ...]
    folders: tuple[str, ...]


def read_names(path: str) -> tuple[str, ...]:
    """Read class names, one per line in the order of the labels, or lines `label name` in any order."""
    names = list(read_lines(path, "the class names").values())
    names = names[1:] if names and names[0] in (IGNORED, f"-1 {IGNORED}") else names
    if not names:
        raise UserError(f"{path}: no class names in this file; write one per line, in the order of the labels")
    if all(COLORED.match(name) for name in names):
        raise UserError(
            f"{path}: these lines begin with colors; write names alone, in the order of the labels in masks"
        )
    rows = [match.groups() for match in map(NUMBERED.fullmatch, names) if match]
    numbers = sorted(int(number) for number, *_ in rows)
    from_one = len(numbers) > 1 and numbers == list(range(1, len(rows) + 1))
    if len(rows) == len(names) and numbers == list(range(len(rows))):
        names = [name for _, name in sorted((int(number), name) for number, _, name in rows)]
    elif all(map(NUMBERED_BEHIND.fullmatch, names)) or (
        len(rows) == len(names) and (from_one or all(mark for _, mark, _ in rows))
    ):
        raise UserError(
            f"{path}: the numbers of these lines are no labels from 0 on in front of names; write names alone"
        )
    if IGNORED in names:
        raise UserError(
            f"{path}: {IGNORED}, label {names.index(IGNORED)}, is no class; ignored pixels are 255 in masks: change "
            "this value there, and leave the name out"
        )
    return tuple(names)


def read_classes(path: str) -> ClassNames:
    """Read class names as `read_names` does, also with WordNet ids in front (`n01440764 tench`), or from JSON.

    JSON may hold a list of names, {"name": label}, {"label": name} or, as in torchvision and Keras,
    {"label": [folder, name]}.
    """
    rows = _json_names(path) if path.endswith(".json") else [[name] for name in read_names(path)]
    if not path.endswith(".json") and all(WNID.match(row[0]) for row in rows):
        rows = [row[0].split(None, 1) for row in rows]
    label_of: dict[str, int] = {}
    for label, row in enumerate(rows):
        if len(row) > 1 and label_of.setdefault(row[0], label) != label:
            raise UserError(f"{path}: {row[0]} is given for two labels, {label_of[row[0]]} and {label}; remove one")
    return ClassNames(tuple(row[-1] for row in rows), tuple(row[0] for row in rows))


def official(dataset: str, classes: int) -> tuple[str, ...]:
    """Return the names of the public set of a kind of data with so many classes; none if there is no such set."""
    file = OFFICIAL.get((dataset, classes))
    return read_classes(str(OFFICIAL_FOLDER / file)).names if file else ()


def readable(names: Sequence[str]) -> tuple[str, ...]:
    """Return names for WordNet ids, if all names are such ids of ImageNet; other names as they are."""
    if not names or not all(map(WNID.match, names)):
        return tuple(names)
    found = read_classes(str(OFFICIAL_FOLDER / OFFICIAL["imagenet", 1000]))
    name_of = dict(zip(found.folders, found.names))
    return tuple(name_of.get(name, name) for name in names)


def _json_names(path: str) -> list[list[str]]:
    """Read rows [name] or [folder, name], by label."""
    with parsing(f"{path}: cannot read the class names", "it should be a JSON file"):
        content = regular.load_json(path)
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
    return isinstance(entry, str) or (isinstance(entry, list) and list(map(type, entry)) == [str, str])
