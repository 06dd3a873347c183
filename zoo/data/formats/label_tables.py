"""Tables of labels, a row per image or clip as data sets of Kaggle have them: files, classes and parts of videos.

Tables of images with several classes each are read by label_sets.py.
"""

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from zoo.data.errors import UserError, nearest, parsing
from zoo.data.formats import images, table_rows
from zoo.data.formats.class_names import ClassNames
from zoo.data.formats.lists import VIDEO_EXTENSIONS, LabeledPath, Span, check_repeated, is_number, walk
from zoo.data.formats.table_rows import Cells, Label, is_json, read_cells

SPANS = re.compile(  # names of columns: groups are of a start, of an end, and, of those that are not in seconds, units
    r"(?:(start|begin|from|onset|first(?=.?frame))|(end|stop|to|offset|last(?=.?frame))|(frame)"
    r"|(m(?:illi|in|inute)?|h(?:our)?)|segment|clip|time|stamp|t|s(?:ec(?:ond)?)?|[^a-z])+"
)
Rows = list[tuple[str, str]]  # path of an image below the root, and its label as text


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


def read_clips(path: str, root: str, notes: list[str], split: str | None = None) -> tuple[Rows, list[Span | None]]:
    """Read a CSV or TSV table of videos below root, and of which part each row is, if it has columns for it."""
    if is_json(path):
        raise UserError(f"{path}: clips are listed in CSV or TSV; write it so")
    table, files = read_cells(path, table_rows.CLIPS, split), Files(root, VIDEO_EXTENSIONS)
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


def listed(path: str, files: "Files", columns: Sequence[str]) -> Iterator[tuple[str, Label, list[str]]]:
    """Yield what a table says: the name of a file, its label, and the files that it may be. Raises UserError."""
    if is_json(path):
        for image, label in table_rows.objects(path).values():
            yield image, label, files.candidates(image)
        return
    table = read_cells(path, columns)
    for row in table.rows.values():
        cells = [*row, *[""] * len(table.names)]
        label = "" if table.label is None else cells[table.label].strip()
        yield cells[table.image], label, files.candidates(cells[table.image])


def once(path: str, rows: Mapping[int, tuple[str, object]], notes: list[str] | None) -> list[int]:
    """Return the first row of each image, and note that others repeat it. Raises UserError if labels differ."""
    check_repeated(path, rows.items(), None)
    first = dict[str, int]()
    for number, (image, _) in rows.items():
        first.setdefault(image, number)
    if len(first) < len(rows) and notes is not None:
        notes.append(f"{path}: {len(rows) - len(first)} rows repeat an earlier one; each image counts once")
    return [*first.values()]


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
        found[number] = name, _only(path, number, name, table_rows.parse_label(row[label], f"{path}: row {number}"))
    return found


def _labels_of_json(path: str, split: str | None) -> dict[int, tuple[str, str]]:
    found = table_rows.objects(path, split)
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
