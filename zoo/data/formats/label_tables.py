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
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, TypeVar

from zoo.data import sources
from zoo.data.errors import UserError, nearest, parsing
from zoo.data.formats import images, regular
from zoo.data.formats.class_names import ClassNames
from zoo.data.formats.file_names import TEST, split_of
from zoo.data.formats.lists import VIDEO_EXTENSIONS, LabeledPath, Span, check_repeated, is_number, read_lines, walk

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
SPLITS = ("split", "subset", "set", "fold")  # names of a column that may say the split of a row
JSON_LINE = 'a line is an object such as {"file_name": "a.jpg", "label": "cat"}, or with "labels": ["cat", "dog"]'
MAX_CELL = 60  # characters of a cell in a message
LIST = 'write a list as ["cat", "dog"], or cat|dog'
WORD = r"""(?:'(?:[^'\\]|\\['"\\])*'|"(?:[^"\\]|\\['"\\])*"|\d+)"""  # of a list as Python prints it
PYTHON_WORD = re.compile(WORD)
PYTHON_LIST = re.compile(rf"[\[({{]\s*(?:{WORD}\s*(?:,\s*{WORD}\s*)*(?:,\s*)?)?[\])}}]")
Rows = list[tuple[str, str]]  # path of an image below the root, and its label as text
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
    return {}


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


def read(path: str, root: str, notes: list[str] | None = None, split: str | None = None) -> Rows:
    """Read a table whose images lie below root, named by path, name or name without extension. Raises UserError.

    Args:
        split: whose rows are wanted, where a column says the split of each; None: all.
    """
    files, rows = Files(root), dict[int, tuple[str, str]]()
    found = _labels_of_json(path, split) if is_json(path) else _labels_of_cells(path, read_cells(path, split=split))
    for number, (image, label) in found.items():
        rows[number] = files.find(image, f"{path}: row {number}"), label
    files.require_some(path)
    return [rows[number] for number in once(path, rows, notes)]


def once(path: str, rows: Mapping[int, tuple[str, object]], notes: list[str] | None) -> list[int]:
    """Return the first row of each image, and note that others repeat it. Raises UserError if labels differ."""
    check_repeated(path, rows.items(), None)
    first = dict[str, int]()
    for number, (image, _) in rows.items():
        first.setdefault(image, number)
    if len(first) < len(rows) and notes is not None:
        notes.append(f"{path}: {len(rows) - len(first)} rows repeat an earlier one; each image counts once")
    return [*first.values()]


def listed(path: str, files: "Files", columns: Sequence[str]) -> Iterator[tuple[str, Label, list[str]]]:
    """Yield what a table says: the name of a file, its label, and the files that it may be. Raises UserError."""
    if is_json(path):
        for image, label in objects(path).values():
            yield image, label, files.candidates(image)
        return
    table = read_cells(path, columns)
    for row in table.rows.values():
        cells = [*row, *[""] * len(table.names)]
        label = "" if table.label is None else cells[table.label].strip()
        yield cells[table.image], label, files.candidates(cells[table.image])


def is_json(path: str) -> bool:
    return path.lower().endswith(".jsonl")


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
    for number, row in _of_split(path, rows, _stated(path, rows), split).items():
        with parsing(f"{path}:{number}: cannot be read", JSON_LINE):
            image, label = (next((row[name] for name in names if name in row), None) for names in (IMAGES, LABELS))
            if not isinstance(image, str) or not {*LABELS} & {*row}:
                raise ValueError("it lacks the image or its label")
            names = _names(label if isinstance(label, list) else [] if label in (None, "") else [label])
        found[number] = image, names if isinstance(label, list) else "".join(names).strip()
    return found


def _names(labels: Sequence[object]) -> tuple[str, ...]:
    """Return the names of a list, sorted. Raises ValueError if it has anything else."""
    if not all(type(each) in (str, int) and each != "" for each in labels) or len({*labels}) < len(labels):
        raise ValueError("labels are names, or numbers from 0, of classes, each once")
    return tuple(sorted(map(str, labels)))


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


def read_clips(path: str, root: str, notes: list[str], split: str | None = None) -> tuple[Rows, list[Span | None]]:
    """Read a CSV or TSV table of videos below root, and of which part each row is, if it has columns for it."""
    if is_json(path):
        raise UserError(f"{path}: clips are listed in CSV or TSV; write it so")
    table, files = read_cells(path, CLIPS, split), Files(root, VIDEO_EXTENSIONS)
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
    at = [at for at, name in enumerate(names) if name.lower() in SPLITS]
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
    return Cells(names, image, label, _of_split(path, rows, splits, split), splits)


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
        name = row[image].strip()
        found[number] = name, _only(path, number, name, parse_label(row[label], f"{path}: row {number}"))
    return found


def _labels_of_json(path: str, split: str | None) -> dict[int, tuple[str, str]]:
    found = objects(path, split)
    return {number: (image, _only(path, number, image, label)) for number, (image, label) in found.items()}


def _only(path: str, number: int, image: str, label: Label) -> str:
    """Return the class of an image. Raises UserError if a list has another number of them."""
    names = label if isinstance(label, tuple) else (label,) * bool(label)
    if len(names) != 1:
        raise UserError(
            f"{path}:{number}: {image} has {len(names)} classes; if an image may have several, set data.name=multilabel"
        )
    return names[0]


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
        self.root, self.paths, self.extensions = root, paths, extensions
        self.named, self.at = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        self.folders = {os.path.dirname(path) for path in paths} - {""}
        self.found, self.missing = 0, ""
        for path in paths:
            for key in {path, os.path.splitext(path)[0]}:
                self.at[key].append(path)
                self.named[os.path.basename(key)].append(path)

    def find(self, name: str, where: str) -> str:
        """Return the path of the image that a table names; that which it gives, if there is none."""
        path, found = os.path.normpath(name.replace("\\", "/")), self.candidates(name)
        if len(found) > 1:
            raise UserError(f"{where}: {name} may be {found[0]} or {found[1]}; write paths below data.root")
        self.found += len(found)
        self.missing = self.missing or (path if not found else "")
        return found[0] if found else path

    def candidates(self, name: str) -> list[str]:
        """Return the paths of the images that a name of a table may mean."""
        path = os.path.normpath(name.replace("\\", "/"))
        while path not in self.at and os.path.dirname(path) not in self.folders:  # files in these have their paths
            _, slash, rest = path.partition("/")  # it may be one from a folder above the root
            if not slash:
                return self.named.get(path, [])
            path = rest
        return self.at.get(path, [])

    def require_some(self, path: str) -> None:
        """Raise UserError if none of the images that a table names has been found."""
        if not self.found:
            raise UserError(f"{path}: none of its files, such as {self.missing}, is below {self.root}")


def number(
    tables: Mapping[tuple[str, str], Rows], names: ClassNames | None
) -> tuple[ClassNames | None, dict[str, list[LabeledPath]]]:
    """Number the labels: as they are if all are numbers, else by the names of the classes, or in their order.

    Args:
        tables: rows by split and path of the table.

    Returns:
        The names, None if labels are numbers without any; and the samples by split.
    """
    labels = {label for rows in tables.values() for _, label in rows}
    if names is None and not all(map(is_number, labels)):
        names = ClassNames(tuple(sorted(labels)), tuple(sorted(labels)))
    number_of = {name: at for of_classes in names or () for at, name in enumerate(of_classes)}
    numbered: dict[str, list[LabeledPath]] = {}
    for (split, path), rows in tables.items():
        numbered[split] = []
        for image, label in rows:
            if label not in number_of and not is_number(label):
                near = nearest(label, number_of)
                raise UserError(
                    f"{path}: {image} has the label {label}, which is no class" + f"; did you mean {near}?" * bool(near)
                )
            numbered[split].append(LabeledPath(image, number_of[label] if label in number_of else int(label)))
    return names, numbered
