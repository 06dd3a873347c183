"""Tables of labels in which an image has any number of classes, none included; files as those of label_tables.py.

CSV and TSV name the classes of an image in one column (`cat|dog`, or a row for each), or have a column of 0 and 1 for
each class.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zoo.data.errors import UserError, nearest
from zoo.data.formats import label_tables
from zoo.data.formats.label_tables import LABELS, Cells, Files
from zoo.data.formats.lists import check_repeated, is_number

SEPARATORS = ("|", ";", ",", " ")  # of the classes in a cell: the first that any table of a data set has
YES_OR_NO = {"1": True, "1.0": True, "true": True, "yes": True, "0": False, "0.0": False, "false": False, "no": False}
UNCERTAIN = ("-1", "-1.0")
MAX_UNUSED = 1000  # numbers without an image, beyond ten for each that has one: these are no labels
Found = dict[int, tuple[str, tuple[str, ...]]]  # image and sorted names of its classes, by row


class LabeledSet(NamedTuple):
    """An image, by its path below the root, and its labels, sorted."""

    path: str
    labels: tuple[int, ...]


def read(
    tables: Mapping[str, str], root: str, known: tuple[str, ...], notes: list[str]
) -> tuple[tuple[str, ...], dict[str, list[LabeledSet]]]:
    """Read the tables of a data set, whose images lie below root; they are found as by label_tables.read.

    Args:
        tables: paths by split.
        known: names of the classes; () to take those of the tables, in the order of their columns or sorted.

    Returns:
        The names of the classes, and the samples by split.
    """
    cells = {path: label_tables.read_cells(path) for path in tables.values() if not label_tables.is_json(path)}
    columns: tuple[str, ...] = ()
    for path, table in cells.items():
        own = tuple(table.names[at] for at in _columns_of_classes(table)) if _has_columns(table) else ()
        columns = columns or _checked(path, table, own, notes)
        if missing := [name for name in columns if own and name not in own]:
            raise UserError(f"{path}: {missing[0]}, a class of the other table, is no column of 0 and 1 here")
    separator = _separator([text for table in cells.values() if not _has_columns(table) for text in _texts(table)])
    found = {}
    for path in tables.values():
        if path not in cells:
            found[path] = label_tables.objects(path)
        elif _has_columns(cells[path]):
            found[path] = _read_columns(path, cells[path], columns)
        else:
            found[path] = _read_cells(path, cells[path], separator, known)
    several = any(len(labels) > 1 for path in cells for _, labels in found[path].values())
    if several and not columns:
        notes.append(f"classes of an image are divided by {'blanks' if separator == ' ' else repr(separator)}")
    classes = known or columns or _classes_of(found)
    return classes, {split: _located(path, root, found[path], classes, notes) for split, path in tables.items()}


def has_several(path: str) -> bool:
    """Return whether images of a table seem to have several classes, or none. Raises UserError if it cannot be read."""
    if label_tables.is_json(path):
        return any(len(labels) != 1 for _, labels in label_tables.objects(path).values())
    table = label_tables.read_cells(path)
    if table.label is None or _has_columns(table):
        return len(_columns_of_classes(table)) > 1
    texts, files = _texts(table), ["".join(row[table.image : table.image + 1]) for row in table.rows.values()]
    is_divided = any(separator in text for text in texts for separator in SEPARATORS[:-1])
    return is_divided or not all(texts) or len({*zip(files, texts)}) > len({*files})


def _has_columns(table: Cells) -> bool:
    """Return whether classes have columns; a column of 0 and 1 that is named as labels are may be that of a class."""
    columns = _columns_of_classes(table)
    if table.label is None:
        return True
    is_named = table.names[table.label].lower() in LABELS
    return table.label in columns and (len(columns) > 1 or not is_named)


def _columns_of_classes(table: Cells) -> list[int]:
    """Return the columns in which most rows have a 0 or 1, or a number that stands for neither."""
    counts, certain = [0] * len(table.names), [0] * len(table.names)
    for row in table.rows.values():
        for at, cell in enumerate(row[: len(counts)]):
            text = cell.strip().lower()
            certain[at] += text in YES_OR_NO
            counts[at] += text in YES_OR_NO or text in UNCERTAIN
    return [at for at, count in enumerate(counts) if at != table.image and certain[at] and 2 * count > len(table.rows)]


def _checked(path: str, table: Cells, columns: tuple[str, ...], notes: list[str]) -> tuple[str, ...]:
    """Return the classes that have a column in a table, and say which these are."""
    if not _has_columns(table):
        return ()
    if not columns or len(set(columns)) < len(columns):
        raise UserError(
            f"{path}: which of its columns ({', '.join(table.names)}) are classes? each needs a name of its own, and 0 "
            "or 1 in every row; or name the classes of an image in a column `labels`"
        )
    unread = [name for at, name in enumerate(table.names) if at != table.image and name not in columns]
    rest = f"; not read: {', '.join(unread)}" if unread else ""
    notes.append(f"{path}: columns of 0 and 1 are the classes: {', '.join(columns)}{rest}")
    return columns


def _texts(table: Cells) -> list[str]:
    label = table.label or 0
    return [row[label].strip().strip("[](){}").strip() if label < len(row) else "" for row in table.rows.values()]


def _separator(texts: Sequence[str]) -> str:
    return next((each for each in SEPARATORS if any(each in text for text in texts)), SEPARATORS[0])


def _check_width(path: str, number: int, row: Sequence[str], table: Cells) -> str:
    """Return the image of a row."""
    if len(row) != len(table.names) or not row[table.image].strip():
        raise UserError(f"{path}: row {number} has {len(row)} cells for {len(table.names)} columns, or no image")
    return row[table.image].strip()


def _read_cells(path: str, table: Cells, separator: str, known: Sequence[str]) -> Found:
    found: Found = {}
    first: dict[str, int] = {}
    for (number, row), text in zip(table.rows.items(), _texts(table)):
        image = _check_width(path, number, row, table)
        parts = [text] if text in known else text.split(None if separator == " " else separator)
        labels = {part.strip().strip("'\"") for part in parts} - {""}
        at = first.setdefault(image, number)  # a table may have a row for each class of an image
        found[at] = image, tuple(sorted(labels | {*(found[at][1] if at in found else ())}))
    return found


def _read_columns(path: str, table: Cells, classes: Sequence[str]) -> Found:
    found: Found = {}
    places = [table.names.index(name) for name in classes]
    for number, row in table.rows.items():
        image = _check_width(path, number, row, table)
        for name, at in zip(classes, places):
            if row[at].strip().lower() not in YES_OR_NO:
                raise UserError(
                    f"{path}: row {number}: {name} is {row[at].strip()!r}, neither 0 nor 1; decide what it counts as, "
                    "or remove the column if it is no class"
                )
        labels = (name for name, at in zip(classes, places) if YES_OR_NO[row[at].strip().lower()])
        found[number] = image, tuple(sorted(labels))
    return found


def _classes_of(found: Mapping[str, Found]) -> tuple[str, ...]:
    names = {name for rows in found.values() for _, labels in rows.values() for name in labels}
    if not names or not all(map(is_number, names)):
        return tuple(sorted(names))
    count = max(map(int, names)) + 1
    if count > MAX_UNUSED + 10 * len(names):
        raise UserError(
            f"{', '.join(found)}: labels are {len(names)} numbers up to {count - 1}, which count classes from 0; name "
            "the classes instead"
        )
    return tuple(map(str, range(count)))


def _located(path: str, root: str, found: Found, classes: Sequence[str], notes: list[str]) -> list[LabeledSet]:
    """Return the samples of a table, with labels in place of names. Raises UserError for a name that is no class."""
    labels = {name: label for label, name in enumerate(classes)}
    names = {name for _, own in found.values() for name in own}
    if names - labels.keys() and all(is_number(name) and int(name) < len(classes) for name in names):
        labels = {name: int(name) for name in names}
    files, rows = Files(root), dict[int, LabeledSet]()
    for number, (image, own) in found.items():
        if unknown := [name for name in own if name not in labels]:
            near = nearest(unknown[0], labels)
            raise UserError(
                f"{path}: row {number}: {image} has the class {unknown[0]}, which is none of the {len(classes)}"
                + f"; did you mean {near}?" * bool(near)
            )
        rows[number] = LabeledSet(
            files.find(image, f"{path}: row {number}"), tuple(sorted(labels[name] for name in own))
        )
    if not names:
        raise UserError(f"{path}: no image has a class")
    shown = ((number, (row.path, ", ".join(classes[label] for label in row.labels))) for number, row in rows.items())
    check_repeated(path, shown, notes)
    files.require_some(path)
    return [*rows.values()]
