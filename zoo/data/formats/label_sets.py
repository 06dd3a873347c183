"""Tables of labels in which an image has any number of classes, none included; files as those of label_tables.py.

CSV and TSV name the classes of an image in one column (`cat|dog`), or have a column of 0 and 1 for each class.
"""

from collections.abc import Sequence
from typing import NamedTuple

from zoo.data.errors import UserError, nearest
from zoo.data.formats import label_tables
from zoo.data.formats.label_tables import Cells, Files
from zoo.data.formats.lists import MAX_CLASSES, check_repeated, is_number

SEPARATORS = ("|", ";", ",")  # of the classes in a cell, the first that a table has; else blanks
YES_OR_NO = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
Found = dict[int, tuple[str, tuple[str, ...]]]  # image and sorted names of its classes, by row


class LabeledSet(NamedTuple):
    """An image, by its path below the root, and what it shows: names of classes, or their labels, sorted."""

    path: str
    labels: tuple


class Sets(NamedTuple):
    """A table. columns: the classes that have a column, in their order, else ()."""

    rows: list[LabeledSet]
    columns: tuple[str, ...] = ()


def read(path: str, root: str, notes: list[str]) -> Sets:
    """Read a table whose images lie below root; they are found as by label_tables.read. Raises UserError."""
    columns: tuple[str, ...] = ()
    if label_tables.is_json(path):
        found = label_tables.objects(path)
    else:
        found, columns = _read_cells(path, notes)
    files = Files(root)
    rows = [LabeledSet(files.find(name, f"{path}: row {number}"), labels) for number, (name, labels) in found.items()]
    check_repeated(path, zip(found, rows), notes)
    files.require_some(path)
    if not any(row.labels for row in rows):
        raise UserError(f"{path}: no image has a class")
    return Sets(rows, columns)


def has_several(path: str) -> bool:
    """Return whether images of a table seem to have several classes, or none. Raises UserError if it cannot be read."""
    if label_tables.is_json(path):
        return any(len(labels) != 1 for _, labels in label_tables.objects(path).values())
    table = label_tables.read_cells(path)
    if table.label is None:
        return len(_columns_of_classes(table)) > 1
    column = [row[table.label].strip() if table.label < len(row) else "" for row in table.rows.values()]
    return not all(column) or any(separator in cell for cell in column for separator in SEPARATORS)


def classes_of(tables: Sequence[Sets]) -> tuple[str, ...]:
    """Return the names of all classes: in the order of the columns, else sorted; numbers are labels."""
    names = {name for table in tables for row in table.rows for name in row.labels}
    if columns := next((table.columns for table in tables if table.columns), ()):
        return columns
    if all(map(is_number, names)) and (count := max(map(int, names)) + 1) <= MAX_CLASSES:
        return tuple(map(str, range(count)))
    return tuple(sorted(names))


def number(path: str, classes: Sequence[str], table: Sets) -> list[LabeledSet]:
    """Return the rows of a table with labels in place of names. Raises UserError for a name that is no class."""
    labels = {name: label for label, name in enumerate(classes)}
    numbered = []
    for row in table.rows:
        for name in row.labels:
            if name not in labels and not (is_number(name) and int(name) < len(classes)):
                near = nearest(name, labels)
                raise UserError(
                    f"{path}: {row.path} has the class {name}, which is none of the {len(classes)}"
                    + f"; did you mean {near}?" * bool(near)
                )
        own = {labels[name] if name in labels else int(name) for name in row.labels}
        numbered.append(LabeledSet(row.path, tuple(sorted(own))))
    return numbered


def _read_cells(path: str, notes: list[str]) -> tuple[Found, tuple[str, ...]]:
    """Return the images, and the classes that have a column."""
    table = label_tables.read_cells(path)
    for number, row in table.rows.items():
        if len(row) != len(table.names) or not row[table.image].strip():
            raise UserError(f"{path}: row {number} has {len(row)} cells for {len(table.names)} columns, or no image")
    if table.label is None:
        return _read_columns(path, table, notes)
    texts = [row[table.label].strip().strip("[]") for row in table.rows.values()]
    separator = next((each for each in SEPARATORS if any(each in text for text in texts)), None)
    if separator is None and any(" " in text for text in texts):
        notes.append(f"{path}: blanks divide the classes of an image; if names have blanks, put a | between classes")
    found: Found = {}
    for (number, row), text in zip(table.rows.items(), texts):
        labels = {part.strip().strip("'\"") for part in text.split(separator)} - {""}
        found[number] = row[table.image].strip(), tuple(sorted(labels))
    return found, ()


def _read_columns(path: str, table: Cells, notes: list[str]) -> tuple[Found, tuple[str, ...]]:
    """As _read_cells, of a table with a column for every class."""
    names, columns = table.names, _columns_of_classes(table)
    classes = tuple(names[at] for at in columns)
    if not classes or len(set(classes)) < len(classes):
        raise UserError(f"{path}: has no column of 0 and 1 for each class, or two of one name: {', '.join(names)}")
    found: Found = {}
    for number, row in table.rows.items():
        for at in columns:
            if row[at].strip().lower() not in YES_OR_NO:
                raise UserError(
                    f"{path}: row {number}: {names[at]} is {row[at].strip()!r}, neither 0 nor 1; decide what it counts "
                    "as, or remove the column if it is no class"
                )
        labels = (names[at] for at in columns if YES_OR_NO[row[at].strip().lower()])
        found[number] = row[table.image].strip(), tuple(sorted(labels))
    unread = [name for at, name in enumerate(names) if at not in (table.image, *columns)]
    notes.append(
        f"{path}: {len(classes)} columns of 0 and 1 are the classes" + f"; not read: {', '.join(unread)}" * bool(unread)
    )
    return found, classes


def _columns_of_classes(table: Cells) -> list[int]:
    """Return the columns in which most rows have a 0 or 1."""
    counts = [0] * len(table.names)
    for row in table.rows.values():
        for at, cell in enumerate(row[: len(counts)]):
            counts[at] += cell.strip().lower() in YES_OR_NO
    return [at for at, count in enumerate(counts) if at != table.image and 2 * count > len(table.rows)]
