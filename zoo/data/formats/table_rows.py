"""Rows of tables of labels: their cells or objects, the names in a cell, and which rows belong to a split.

CSV and TSV have a header, JSONL has an object per line, as `metadata.jsonl` of Hugging Face. What the rows say of files
and classes is found by label_tables.py, and by label_sets.py where an image may have several classes.
"""

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from zoo.data import sources
from zoo.data.errors import UserError, parsing
from zoo.data.formats import images, regular
from zoo.data.formats.file_names import TEST, split_of
from zoo.data.formats.lists import VIDEO_EXTENSIONS, read_lines

TABLES = (".csv", ".tsv", ".jsonl")
IMAGES = (
    *("image", "image_path", "file", "file_name", "filename", "filepath", "file_path", "path", "img", "image_name"),
    *("image index", "image_id", "id", "name"),
)  # names of a column, those that say it most clearly first
LABELS = (
    *("label", "labels", "class", "class_name", "category", "target", "species", "breed", "diagnosis"),
    *("tags", "tag", "classes", "categories", "finding labels", "attributes", "action"),
)
CLIPS = ("video", "clip", "video_path", *IMAGES, "video_id", "youtube_id")
SPLITS = ("split", "subset", "set", "fold")  # names of a column that may say the split of a row
FLAGS = {"is_train": "train", "is_valid": "val", "is_val": "val", "is_test": TEST}  # and of those that say yes or no
YES_OR_NO = {"1": True, "1.0": True, "true": True, "yes": True, "0": False, "0.0": False, "false": False, "no": False}
JSON_LINE = 'a line is an object such as {"file_name": "a.jpg", "label": "cat"}, or with "labels": ["cat", "dog"]'
MAX_CELL = 60  # characters of a cell in a message
LIST = 'write a list as ["cat", "dog"], or cat|dog'
WORD = r"""(?:'(?:[^'\\]|\\['"\\])*'|"(?:[^"\\]|\\['"\\])*"|\d+)"""  # of a list as Python prints it
PYTHON_WORD = re.compile(WORD)
PYTHON_LIST = re.compile(rf"[\[({{]\s*(?:{WORD}\s*(?:,\s*{WORD}\s*)*(?:,\s*)?)?[\])}}]")
Label = str | tuple[str, ...]  # text of a cell, or the names in a list
Row = TypeVar("Row")


class Cells(NamedTuple):
    """A table of CSV or TSV.

    Attributes:
        image: column that names the images or videos.
        label: column that is named as those of labels are, or the only other one; None if there is none.
        rows: by number of the row in the file.
        splits: split of each row, where a column states it; that column is left out of `names` and `rows`.
    """

    names: tuple[str, ...]
    image: int
    label: int | None
    rows: dict[int, list[str]]
    splits: Mapping[int, str] = {}


def is_table(path: str) -> bool:
    return path.lower().endswith(TABLES)


def is_json(path: str) -> bool:
    return path.lower().endswith(".jsonl")


def find(root: str) -> dict[str, str]:
    """Return the table of the labels in a folder, and perhaps that of the validation split: names by split."""
    names = [name for name in sources.listdir(root) if is_table(name)]
    found = {split: name for name in reversed(names) if (split := split_of(name)) in ("train", "val")}
    others = [name for name in names if split_of(name) is None and "submission" not in name.lower()]
    if "train" not in found and len(others) > 1:
        others = [name for name in others if _names_labels(os.path.join(root, name))]
    if "train" not in found and len(others) == 1:
        found["train"] = others[0]
    return found if "train" in found else {}


def _names_labels(path: str) -> bool:
    """Return whether a table has a column of images and one that is named as those of labels are."""
    with suppress(UserError):
        table = None if is_json(path) else read_cells(path)
        return bool(objects(path)) if table is None else table.names[table.label or 0].lower() in LABELS
    return False


def with_val(
    tables: Mapping[str, str | None], notes: list[str], columns: Sequence[str] = IMAGES, train: str | None = None
) -> dict[str, str | None]:
    """Return lists by split, for `val` the table of `train` where there is no other and a column of it divides it.

    Args:
        notes: receive how the rows of tables are divided.
        columns: as those of read_cells.
        train: the list of the training samples, where `tables` has none.
    """
    found, train, stated = dict(tables), tables.get("train") or train, {}
    for path in {path: None for path in (train, tables.get("val")) if path and is_table(path)}:
        stated[path] = Counter(_splits(path, columns).values())
    if found.get("val") is None and train in stated and {"val", TEST} & {*stated[train]}:
        found["val"] = train
    for path, counts in stated.items():
        taken = {_stated_as(split, counts) for split in found if found[split] == path}
        rows = ", ".join(f"{count} {split}{'' if split in taken else ' (left out)'}" for split, count in counts.items())
        if counts and taken:
            notes.append(f"{path}: a column divides the rows: {rows}")
    return found


def _splits(path: str, columns: Sequence[str]) -> Mapping[int, str]:
    return _stated(path, _objects(path)) if is_json(path) else read_cells(path, columns).splits


def read_cells(path: str, columns: Sequence[str] = IMAGES, split: str | None = None) -> Cells:
    """Read a CSV or TSV file, whose blank lines are left out. Raises UserError.

    Args:
        columns: names of the column of images or videos.
        split: as that of `read`.
    """
    with parsing(f"{path}: cannot be read", "it should be a CSV file in UTF-8 with a header"):
        text = regular.read(path).decode("utf-8-sig")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        table = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(map(str.strip, row))]
    media = (*images.EXTENSIONS, *VIDEO_EXTENSIONS)
    if table and len(table[0]) == 2 and table[0][0].strip().lower().endswith(media):  # without a header
        return Cells(("image", "label"), 0, 1, dict(enumerate(table, 1)))
    if len(table) < 2:
        raise UserError(f"{path}: has no row behind its header")
    names, rows = tuple(cell.strip() for cell in table[0]), dict(enumerate(table[1:], 2))
    at = [at for at, name in enumerate(names) if name.lower() in (*SPLITS, *FLAGS)]
    cells = {n: {names[i].lower(): row[i] for i in at if i < len(row)} for n, row in rows.items()} if at else {}
    splits = _stated(path, cells)
    if splits:  # these columns are no classes
        names = tuple(name for i, name in enumerate(names) if i not in at)
        rows = {n: [cell for i, cell in enumerate(row) if i not in at] for n, row in rows.items()}
    lower, others = [name.lower() for name in names], range(len(names))
    image = next((lower.index(name) for name in columns if name in lower), None)
    if image is None:
        raise UserError(f"{path}: which of its columns ({', '.join(names)}) names the files? rename it to {columns[0]}")
    label = next((lower.index(name) for name in LABELS if name in lower), 1 - image if len(others) == 2 else None)
    if splits and columns == IMAGES:  # parts of one video may be divided
        _check_apart(path, {n: row[image] for n, row in rows.items() if image < len(row)}, splits)
    return Cells(names, image, label, _of_split(path, rows, splits, split), splits)


def _objects(path: str) -> dict[int, dict[str, object]]:
    """Return the objects of a JSONL file by number of the line, their keys in lower case."""
    found = {}
    for number, line in read_lines(path, "this table").items():
        with parsing(f"{path}:{number}: cannot be read", JSON_LINE):
            found[number] = {key.lower(): value for key, value in json.loads(line).items()}
    if not found:
        raise UserError(f"{path}: is empty; {JSON_LINE}")
    return found


def objects(path: str, split: str | None = None) -> dict[int, tuple[str, Label]]:
    """Return image and label by number of the line of a JSONL file. split: as that of `read`."""
    found = {}
    rows = _objects(path)
    splits = _stated(path, rows)
    if splits:
        named = {n: next((row[name] for name in IMAGES if name in row), n) for n, row in rows.items()}
        _check_apart(path, {n: str(name) for n, name in named.items()}, splits)
    for number, row in _of_split(path, rows, splits, split).items():
        with parsing(f"{path}:{number}: cannot be read", JSON_LINE):
            image, label = (next((row[name] for name in names if name in row), None) for names in (IMAGES, LABELS))
            if not isinstance(image, str) or not {*LABELS} & {*row}:
                raise ValueError("it lacks the image or its label")
            names = _names(label if isinstance(label, list) else [] if label in (None, "") else [label])
        found[number] = image, names if isinstance(label, list) else "".join(names).strip()
    return found


def _stated(path: str, rows: Mapping[int, Mapping[str, object]]) -> dict[int, str]:
    """Return the split of each row that a value of it states; nothing if there is none with such words."""
    for name in SPLITS:
        cells = {number: row.get(name) for number, row in rows.items()}
        words = {number: cell if isinstance(cell, str) else "" for number, cell in cells.items()}
        found = {number: split_of(word) for number, word in words.items()}
        if any(found.values()):
            for number, split in found.items():
                if split is None:
                    raise UserError(
                        f"{path}: row {number}: {name} is {words[number]!r}; write train, val or test in every row, or "
                        "give another name to what is no split"
                    )
            return {number: str(split) for number, split in found.items()}
    flags = [name for name in FLAGS if any(name in row for row in rows.values())]
    answers = {number: {name: row.get(name) for name in flags} for number, row in rows.items() if flags}
    return {number: _flagged(path, number, row) for number, row in answers.items()}


def _flagged(path: str, number: int, flags: Mapping[str, object]) -> str:
    """Return the split of a row, which is yes in one of its columns, or in none. Raises UserError."""
    answers = {name: YES_OR_NO.get(str(value).strip().lower()) for name, value in flags.items()}
    stated = [FLAGS[name] for name, answer in answers.items() if answer]
    if None in answers.values() or len(stated) > 1:
        values = ", ".join(f"{name} {value!r}" for name, value in flags.items())
        raise UserError(f"{path}: row {number}: {values}: write 1 in one of these columns at most, and 0 in the others")
    return stated[0] if stated else "val" if "is_train" in flags else "train"


def _check_apart(path: str, names: Mapping[int, str], splits: Mapping[int, str]) -> None:
    """Raise UserError if an image, by number of its row, belongs to two splits."""
    first = dict[str, int]()
    for number, name in names.items():
        other = first.setdefault(name, number)
        if splits[number] != splits[other]:
            rows = f"{splits[other]} in row {other} and {splits[number]} in row {number}"
            raise UserError(f"{path}: {name} is {rows}; keep one of them")


def _stated_as(split: str, stated: Mapping[str, int]) -> str:
    """Return the word by which rows of a split state it: `test` for `val`, where there is no other."""
    return TEST if split == "val" and "val" not in stated else split


def _of_split(path: str, rows: dict[int, Row], splits: Mapping[int, str], split: str | None) -> dict[int, Row]:
    """Return the rows of a split; all where none is asked for, or none is stated."""
    if split is None or not splits:
        return rows
    word = _stated_as(split, Counter(splits.values()))
    found = {number: row for number, row in rows.items() if splits[number] == word}
    if not found:
        raise UserError(f"{path}: its column of splits has no row for {split}; name a table that has some")
    return found


def parse_label(text: str, where: str) -> Label:
    """Return the names of a cell that is a list of JSON or Python; the text of any other cell."""
    text = text.strip()
    if not text.startswith(("[", "{", "(")):
        return text
    if text.startswith("(") and not text.startswith(("('", '("')):
        return text  # is a name
    with parsing(f"{where}: {text[:MAX_CELL]} cannot be read", LIST):
        if text.startswith("["):
            with suppress(json.JSONDecodeError):
                return _names([*dict.fromkeys(json.loads(text))])
        if not PYTHON_LIST.fullmatch(text):
            raise ValueError("it begins as a list does, and is none")
        words = [
            re.sub(r"\\(.)", r"\1", word if word.isdecimal() else word[1:-1]) for word in PYTHON_WORD.findall(text)
        ]
        return _names([*dict.fromkeys(words)])


def _names(labels: Sequence[object]) -> tuple[str, ...]:
    """Return the names of a list, sorted. Raises ValueError if it has anything else."""
    if not all(type(each) in (str, int) and each != "" for each in labels) or len({*labels}) < len(labels):
        raise ValueError("labels are names, or numbers from 0, of classes, each once")
    return tuple(sorted(map(str, labels)))
