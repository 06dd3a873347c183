"""Tables of labels: a row per image, CSV or TSV with a header, as data sets of Kaggle have them, or JSONL.

JSONL has an object per line, as `metadata.jsonl` of Hugging Face. Tables of images with several classes each are read
by label_sets.py.
"""

import csv
import io
import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from zoo.data import sources
from zoo.data.errors import UserError, nearest, parsing
from zoo.data.formats import images, regular
from zoo.data.formats.class_names import ClassNames
from zoo.data.formats.lists import VIDEO_EXTENSIONS, LabeledPath, Span, check_repeated, is_number, read_lines, walk
from zoo.data.formats.split_words import split_of

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
SPANS = re.compile(  # names of columns: groups are of a start, of an end, and, of those that are not in seconds, units
    r"(?:(start|begin|from|onset|first(?=.?frame))|(end|stop|to|offset|last(?=.?frame))|(frame)"
    r"|(m(?:illi|in|inute)?|h(?:our)?)|segment|clip|time|stamp|t|s(?:ec(?:ond)?)?|[^a-z])+"
)
JSON_LINE = 'a line is an object such as {"file_name": "a.jpg", "label": "cat"}, or with "labels": ["cat", "dog"]'
Rows = list[tuple[str, str]]  # path of an image below the root, and its label as text


class Cells(NamedTuple):
    """A table of CSV or TSV.

    Attributes:
        image: column that names the images or videos.
        label: column that is named as those of labels are, or the only other one; None if there is none.
        rows: by number of the row in the file.
    """

    names: tuple[str, ...]
    image: int
    label: int | None
    rows: dict[int, list[str]]


def is_table(path: str) -> bool:
    return path.lower().endswith(TABLES)


def find(root: str) -> dict[str, str]:
    """Return the table of the labels in a folder, and perhaps that of the validation split: names by split."""
    names = [name for name in sources.listdir(root) if is_table(name)]
    found = {split: name for name in reversed(names) if (split := split_of(name)) in ("train", "val")}
    others = [name for name in names if split_of(name) is None and "submission" not in name.lower()]
    if "train" not in found and len(others) == 1:
        found["train"] = others[0]
    return found if "train" in found else {}


def read(path: str, root: str, notes: list[str] | None = None) -> Rows:
    """Read a table whose images lie below root, named by path, name or name without extension. Raises UserError."""
    files, rows = Files(root), dict[int, tuple[str, str]]()
    found = _labels_of_json(path) if is_json(path) else _labels_of_cells(path, read_cells(path))
    for number, (image, label) in found.items():
        rows[number] = files.find(image, f"{path}: row {number}"), label
    check_repeated(path, rows.items(), notes)
    files.require_some(path)
    return [*rows.values()]


def is_json(path: str) -> bool:
    return path.lower().endswith(".jsonl")


def objects(path: str) -> dict[int, tuple[str, tuple[str, ...]]]:
    """Return image and labels by number of the line of a JSONL file."""
    found = {}
    for number, line in read_lines(path, "this table").items():
        with parsing(f"{path}:{number}: cannot be read", JSON_LINE):
            row = {key.lower(): value for key, value in json.loads(line).items()}
            image, label = (next((row[name] for name in names if name in row), None) for names in (IMAGES, LABELS))
            if not isinstance(image, str) or not {*LABELS} & {*row}:
                raise ValueError("it lacks the image or its label")
            labels = label if isinstance(label, list) else [] if label in (None, "") else [label]
            if not all(type(each) in (str, int) and each != "" for each in labels) or len({*labels}) < len(labels):
                raise ValueError("labels are names, or numbers from 0, of classes, each once")
        found[number] = image, tuple(sorted(str(each) for each in labels))
    if not found:
        raise UserError(f"{path}: is empty; {JSON_LINE}")
    return found


def read_clips(path: str, root: str, notes: list[str]) -> tuple[Rows, list[Span | None]]:
    """Read a CSV or TSV table of videos below root, and of which part each row is, if it has columns for it."""
    if is_json(path):
        raise UserError(f"{path}: clips are listed in CSV or TSV; write it so")
    table, files = read_cells(path, CLIPS), Files(root, VIDEO_EXTENSIONS)
    rows, spans = dict[int, tuple[str, str]](), list[Span | None]()
    columns, unit = _columns_of_spans(path, table.names)
    for number, (name, label) in _labels_of_cells(path, table).items():
        video, span = files.find(name, f"{path}: row {number}"), None
        if re.search("[|;]", label):
            raise UserError(
                f"{path}: row {number}: {name} has the label {label}; a video has one class: give it one, or "
                "a row for each with its start and end"
            )
        if columns:
            cells = [table.rows[number][at].strip() for at in columns if at < len(table.rows[number])]
            with parsing(f"{path}: row {number}: start and end", "they are numbers of seconds or frames"):
                start, end = map(float, cells)
            span = Span(start, end, unit)
            if not 0 <= span.start < span.end < math.inf:
                raise UserError(f"{path}: row {number}: {span} is no part of a video; the end lies behind the start")
        rows[number] = video, label
        spans.append(span)
    check_repeated(path, ((at, (f"{row[0]} {span}", row[1])) for (at, row), span in zip(rows.items(), spans)), notes)
    files.require_some(path)
    return [*rows.values()], spans


def _columns_of_spans(path: str, names: Sequence[str]) -> tuple[tuple[int, ...], Literal["s", "frames"]]:
    """Return the columns of start and end, if there are any, and their unit. Raises UserError."""
    matches = ((at, SPANS.fullmatch(name.lower())) for at, name in enumerate(names))
    found = {at: match for at, match in matches if match and (match[1] or match[2])}
    if not found:
        return (), "s"
    starts, ends = ([at for at, match in found.items() if match[group]] for group in (1, 2))
    units = {(match[3] is not None, match[4]) for match in found.values()}
    if len(starts) == len(ends) == 1 and starts != ends and units in ({(False, None)}, {(True, None)}):
        return (*starts, *ends), "frames" if (True, None) in units else "s"
    raise UserError(
        f"{path}: its columns {', '.join(names[at] for at in found)} should be one start and one end, both in seconds "
        "or both in frames; add what lacks, and remove or rename the others"
    )


def read_cells(path: str, columns: Sequence[str] = IMAGES) -> Cells:
    """Read a CSV or TSV file, whose blank lines are left out. Raises UserError.

    Args:
        columns: names of the column of images or videos.
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
    names = tuple(cell.strip() for cell in table[0])
    lower, others = [name.lower() for name in names], range(len(names))
    image = next((lower.index(name) for name in columns if name in lower), None)
    if image is None:
        raise UserError(f"{path}: which of its columns ({', '.join(names)}) names the files? rename it to {columns[0]}")
    label = next((lower.index(name) for name in LABELS if name in lower), 1 - image if len(others) == 2 else None)
    return Cells(names, image, label, dict(enumerate(table[1:], 2)))


def _labels_of_cells(path: str, table: Cells) -> dict[int, tuple[str, str]]:
    image, label, found = table.image, table.label, {}
    if label is None:
        raise UserError(
            f"{path}: which of its columns ({', '.join(table.names)}) holds the class? rename it to label; if an image "
            "may have several classes, set data.name=multilabel"
        )
    for number, row in table.rows.items():
        if len(row) <= max(image, label) or not row[image].strip() or not row[label].strip():
            raise UserError(f"{path}: row {number} lacks the image or its label")
        found[number] = row[image].strip(), row[label].strip()
    return found


def _labels_of_json(path: str) -> dict[int, tuple[str, str]]:
    found = {}
    for number, (image, labels) in objects(path).items():
        if len(labels) != 1:
            raise UserError(
                f"{path}:{number}: {image} has {len(labels)} classes; if an image may have several, set "
                "data.name=multilabel"
            )
        found[number] = image, labels[0]
    return found


class Files:
    """Images or videos below a folder, by their path, their name, and their name without extension."""

    def __init__(self, root: str, extensions: tuple[str, ...] = images.EXTENSIONS):
        folders = ((os.path.relpath(folder, root), names) for folder, names in walk(root))
        paths = [
            os.path.normpath(os.path.join(folder, name))
            for folder, names in folders
            for name in names
            if name.lower().endswith(extensions)
        ]
        self.root, self.named, self.at = root, defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        self.folders = {os.path.dirname(path) for path in paths} - {""}
        self.found, self.missing = 0, ""
        for path in paths:
            for key in {path, os.path.splitext(path)[0]}:
                self.at[key].append(path)
                self.named[os.path.basename(key)].append(path)

    def find(self, name: str, where: str) -> str:
        """Return the path of the image that a table names; that which it gives, if there is none."""
        path = os.path.normpath(name.replace("\\", "/"))
        is_elsewhere = os.path.dirname(path) not in self.folders  # what lies in a folder of these files has its path
        found = self.at.get(path) or (self.named.get(os.path.basename(path), []) if is_elsewhere else [])
        if len(found) > 1:
            raise UserError(f"{where}: {name} may be {found[0]} or {found[1]}; write paths below data.root")
        self.found += len(found)
        self.missing = self.missing or (path if not found else "")
        return found[0] if found else path

    def require_some(self, path: str) -> None:
        """Raise UserError if none of the images that a table names has been found."""
        if not self.found:
            raise UserError(f"{path}: none of its files, such as {self.missing}, is below {self.root}")


def number(
    tables: Mapping[str, Rows], names: ClassNames | None
) -> tuple[ClassNames | None, dict[str, list[LabeledPath]]]:
    """Number the labels: as they are if all are numbers, else by the names of the classes, or in their order.

    Args:
        tables: rows by path of the table.

    Returns:
        The names, None if labels are numbers without any; and the samples of each table.
    """
    labels = {label for rows in tables.values() for _, label in rows}
    if names is None and not all(map(is_number, labels)):
        names = ClassNames(tuple(sorted(labels)), tuple(sorted(labels)))
    number_of = {name: at for of_classes in names or () for at, name in enumerate(of_classes)}
    numbered: dict[str, list[LabeledPath]] = {}
    for path, rows in tables.items():
        numbered[path] = []
        for image, label in rows:
            if label not in number_of and not is_number(label):
                near = nearest(label, number_of)
                raise UserError(
                    f"{path}: {image} has the label {label}, which is no class" + f"; did you mean {near}?" * bool(near)
                )
            numbered[path].append(LabeledPath(image, number_of[label] if label in number_of else int(label)))
    return names, numbered
