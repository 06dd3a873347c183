"""Tables of labels, CSV or TSV: a row per image, with columns that a header names, as data sets of Kaggle have them."""

import csv
import io
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence

from zoo.data import sources
from zoo.data.errors import UserError, nearest, parsing
from zoo.data.formats import images, regular
from zoo.data.formats.class_names import ClassNames
from zoo.data.formats.lists import LabeledPath, check_repeated, is_number, walk
from zoo.data.formats.split_words import split_of

TABLES = (".csv", ".tsv")
IMAGES = (
    *("image", "image_path", "file", "file_name", "filename", "filepath", "file_path", "path", "img", "image_name"),
    *("image_id", "id", "name"),
)  # names of a column, those that say it most clearly first
LABELS = ("label", "labels", "class", "class_name", "category", "target", "species", "breed", "diagnosis")
Rows = list[tuple[str, str]]  # path of an image below the root, and its label as text


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
    with parsing(f"{path}: cannot be read", "it should be a CSV file in UTF-8 with a header"):
        text = regular.read(path).decode("utf-8-sig")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        table = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if any(map(str.strip, row))]
    image, label, begin = _columns(path, table)
    files, rows = _Files(root), Rows()
    for number, row in enumerate(table[begin:], begin + 1):
        if len(row) <= max(image, label) or not row[image].strip() or not row[label].strip():
            raise UserError(f"{path}: row {number} lacks the image or its label")
        rows.append((files.find(row[image].strip(), f"{path}: row {number}"), row[label].strip()))
    check_repeated(path, enumerate(rows, begin + 1), notes)
    if files.missing == len(rows):
        raise UserError(f"{path}: none of its {len(rows)} images, such as {rows[0][0]}, is below {root}")
    return rows


def _columns(path: str, table: Sequence[Sequence[str]]) -> tuple[int, int, int]:
    """Return the columns of the images and of their labels, and the first row behind the header."""
    if len(table) < 2:
        raise UserError(f"{path}: has no row behind its header")
    if table[0][0].strip().lower().endswith(images.EXTENSIONS) and len(table[0]) == 2:
        return 0, 1, 0
    names = [cell.strip().lower() for cell in table[0]]
    image = next((names.index(name) for name in IMAGES if name in names), None)
    if image is None:
        raise UserError(f"{path}: which of its columns ({', '.join(names)}) names the images? rename it to image")
    others = [at for at in range(len(names)) if at != image]
    label = next((names.index(name) for name in LABELS if name in names), others[0] if len(others) == 1 else None)
    if label is None:
        raise UserError(
            f"{path}: which of its columns ({', '.join(names)}) holds the class? rename it to label; an image has one "
            "class here"
        )
    return image, label, 1


class _Files:
    """Images below a folder, by their path, their name, and their name without extension."""

    def __init__(self, root: str):
        folders = ((os.path.relpath(folder, root), names) for folder, names in walk(root))
        paths = [
            os.path.normpath(os.path.join(folder, name))
            for folder, names in folders
            for name in names
            if name.lower().endswith(images.EXTENSIONS)
        ]
        self.missing, self.paths, self.named = 0, set(paths), defaultdict[str, list[str]](list)
        for path in paths:
            name = os.path.basename(path)
            for key in {name, os.path.splitext(name)[0]}:
                self.named[key].append(path)

    def find(self, name: str, where: str) -> str:
        """Return the path of the image that a table names; that which it gives, if there is none."""
        path = os.path.normpath(name.replace("\\", "/"))
        if path in self.paths:
            return path
        found = self.named.get(os.path.basename(path), [])
        if len(found) > 1:
            raise UserError(f"{where}: {name} may be {found[0]} or {found[1]}; write paths below data.root")
        self.missing += not found
        return found[0] if found else path


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
