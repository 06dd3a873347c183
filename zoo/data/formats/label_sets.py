"""Tables of labels in which an image has any number of classes, none included; files as those of label_tables.py.

CSV and TSV name the classes of an image in one column (`cat|dog`, or a row for each), or have a column of 0 and 1 for
each class.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from zoo.data.errors import Option, Part, UserError, nearest
from zoo.data.formats import table_rows
from zoo.data.formats.label_tables import Files, once
from zoo.data.formats.lists import is_number
from zoo.data.formats.table_rows import LABELS, SPLITS, YES_OR_NO, Cells, Label

SEPARATORS = ("|", ";", ",", " ")  # of the classes in a cell: the first that divides those of any table of a data set
OTHERS = re.compile(r"[|;,/+]")  # characters by which a name may be several classes
SHARED, MOST = 0.05, 0.5  # of the cells with commas or blanks: where fewer share parts with others, these are of names
FEW = 0.1  # of the images: so few without a class, or with several, may be mistakes
MAX_ROWS = 5  # in a message
ASK: tuple[Part, ...] = (
    "say which with ",
    Option("--task", "classify"),
    " (one class per image) or ",
    Option("--task", "multilabel"),
)
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
    cells, labels = _open(tables)
    columns: tuple[str, ...] = ()
    for split, table in cells.items():
        own = () if split in labels else _checked(tables[split], table)
        if odd := sorted({*columns} ^ {*own}) if columns and own else ():
            raise UserError(
                f"{tables[split]}: {odd[0]} is a class, a column of 0 and 1, in one table, and none in the other; add "
                "it to both, or remove it"
            )
        if own and not columns:
            unread = [name for at, name in enumerate(table.names) if at != table.image and name not in own]
            rest = f"; not read: {', '.join(unread)}" if unread else ""
            notes.append(f"{tables[split]}: columns of 0 and 1 are the classes: {', '.join(own)}{rest}")
        columns = columns or own
    separator, _ = _separator(labels, known)
    found = {
        split: _read_columns(path, cells[split], columns)
        if split not in labels
        else _read_cells(labels[split], separator, known)
        for split, path in tables.items()
    }
    _check_names(tables, labels, found, known)
    if joined := [text for text in _texts(labels) if "," in text and text not in known] if not separator else []:
        notes.append(
            f"no part of {joined[0]!r} is in another cell: its comma belongs to a name; | would divide classes"
        )
    if separator:
        notes.append(f"classes of an image are divided by {'blanks' if separator == ' ' else repr(separator)}")
    classes = known or columns or _classes_of(tables, found)
    return classes, {split: _located(path, root, found[split], classes, notes) for split, path in tables.items()}


def _open(tables: Mapping[str, str]) -> tuple[dict[str, Cells], dict[str, dict[int, tuple[str, Label]]]]:
    """Return by split the tables of cells, and the images and labels of tables that have no column for each class."""
    cells, labels = dict[str, Cells](), dict[str, dict[int, tuple[str, Label]]]()
    for split, path in tables.items():
        if table_rows.is_json(path):
            labels[split] = table_rows.objects(path, split)
            continue
        cells[split] = table = table_rows.read_cells(path, split=split)
        if not _has_columns(table):
            labels[split] = {
                number: (
                    _check_width(path, number, row, table),
                    table_rows.parse_label(row[table.label or 0], f"{path}: row {number}"),
                )
                for number, row in table.rows.items()
            }
    return cells, labels


def has_several(tables: Mapping[str, str]) -> bool:
    """Return whether images of tables, by split, have several classes, or none. Raises UserError where it is in doubt.

    The message then has the tasks that decide it.
    """
    cells, labels = _open(tables)
    for split, table in cells.items():
        columns = [table.names[at] for at in _columns_of_classes(table)]
        if split in labels:
            continue
        if table.label is not None and len(columns) > 1:
            name = table.names[table.label]
            what = f"is {name} the class of an image, or are the columns of 0 and 1 its classes ({', '.join(columns)})"
            raise UserError(f"{tables[split]}: {what}? ", *ASK)
        return len(columns) > 1
    separator, is_doubtful = _separator(labels, ())
    if is_doubtful:
        text = next(text for text in _texts(labels) if len(_divide(text, separator)) > 1)
        what = f"is {text!r} one class, or several divided by {'blanks' if separator == ' ' else repr(separator)}"
        raise UserError(f"{_paths(tables)}: {what}? ", *ASK)
    found = {split: _read_cells(rows, separator, ()) for split, rows in labels.items()}
    _check_names(tables, labels, found, ())
    odd = {split: {image for image, own in rows.values() if len(own) != 1} for split, rows in found.items()}
    if 0 < sum(map(len, odd.values())) < FEW * sum(map(len, found.values())):
        for split, images in odd.items():
            rows = [str(number) for number, (image, _) in labels[split].items() if image in images]
            if rows:
                listed = ", ".join(rows[:MAX_ROWS]) + " ..." * (len(rows) > MAX_ROWS)
                what = f"{len(images)} of {len(found[split])} images have no class or several, and the others one"
                raise UserError(
                    f"{tables[split]}: row{'s' * (len(rows) > 1)} {listed}: {what}; mend these rows, or ", *ASK
                )
    return any(odd.values())


def names_classes(path: str, columns: Sequence[str], several: bool) -> bool | None:
    """Return whether a table certainly names classes; False if its other column may, and None if none does.

    Args:
        columns: as those of table_rows.read_cells.
        several: whether an image may have several.
    """
    if table_rows.is_json(path):
        return True
    table = table_rows.read_cells(path, columns)
    if table.label is None:
        return True if several and len(_columns_of_classes(table)) > 1 else None
    return table.names[table.label].lower() in LABELS


def _has_columns(table: Cells) -> bool:
    """Return whether classes have columns; a column of 0 and 1 that is named as labels are may be that of a class."""
    if table.label is None:
        return True
    columns, at = _columns_of_classes(table), table.label
    is_named = table.names[at].lower() in LABELS
    is_binary = all(row[at].strip().lower() in (*YES_OR_NO, *UNCERTAIN, "") for row in table.rows.values() if row[at:])
    return at in columns and (len(columns) > 1 and is_binary if is_named else True)


def _columns_of_classes(table: Cells) -> list[int]:
    """Return the columns in which most rows have a 0 or 1, or a number that stands for neither."""
    counts, certain = [0] * len(table.names), [0] * len(table.names)
    for row in table.rows.values():
        for at, cell in enumerate(row[: len(counts)]):
            text = cell.strip().lower()
            certain[at] += text in YES_OR_NO
            counts[at] += text in YES_OR_NO or text in UNCERTAIN
    no_class = {table.image, *(at for at, name in enumerate(table.names) if name.lower() in SPLITS)}
    return [at for at, count in enumerate(counts) if at not in no_class and certain[at] and 2 * count > len(table.rows)]


def _checked(path: str, table: Cells) -> tuple[str, ...]:
    """Return the classes that have a column in a table. Raises UserError if another column may be one of a class."""
    places = _columns_of_classes(table)
    columns = tuple(table.names[at] for at in places)
    if not columns or len(set(columns)) < len(columns):
        raise UserError(
            f"{path}: which of its columns ({', '.join(table.names)}) are classes? each needs a name of its own, and 0 "
            "or 1 in every row; or name the classes of an image in a column `labels`"
        )
    for at in {*range(len(table.names))} - {*places, table.image}:
        words = {row[at].strip() for row in table.rows.values() if row[at:]}
        if table.names[at] and table.names[at].lower() not in SPLITS and _may_be_class(words - {""}):
            shown = ", ".join(map(repr, sorted(words)[:MAX_ROWS]))
            raise UserError(
                f"{path}: {table.names[at]} has the values {shown} beside columns of 0 and 1; write 0 or 1 in every "
                "row, or remove the column if it is no class"
            )
    return columns


def _may_be_class(words: set[str]) -> bool:
    """Return whether words are numbers as of a class: probabilities, small counts, or 0 and 1 with blanks."""
    try:
        values = {float(YES_OR_NO.get(word.lower(), word)) for word in words}
    except ValueError:
        return False
    beyond = {value for value in values if not 0 <= value <= 1 or math.isnan(value)}
    return bool(values - beyond) and len(beyond) <= 2


def _paths(tables: Mapping[str, str]) -> str:
    return " and ".join(dict.fromkeys(tables.values()))


def _texts(labels: Mapping[str, Mapping[int, tuple[str, Label]]]) -> list[str]:
    """Return the different texts of cells."""
    return sorted({label for rows in labels.values() for _, label in rows.values() if isinstance(label, str)})


def _divide(text: str, separator: str | None) -> set[str]:
    return {part.strip() for part in (text.split(None if separator == " " else separator) if separator else [text])} - {
        ""
    }


def _separator(
    labels: Mapping[str, Mapping[int, tuple[str, Label]]], known: Collection[str]
) -> tuple[str | None, bool]:
    """Return what divides the classes in cells, None if nothing does, and whether it may be a part of names.

    Names have commas and blanks, too. These divide cells whose parts are in other cells, and numbers.
    """
    texts = [text for text in _texts(labels) if text not in known]
    for separator in SEPARATORS:
        cells = [_divide(text, separator) for text in texts]
        divided = [parts for parts in cells if len(parts) > 1]
        if separator in "|;" and any(separator in text for text in texts):
            return separator, False
        if not divided:
            continue
        if all(map(is_number, chain(*divided))):
            return separator, False
        counts = Counter(chain(known, *cells))
        whole = sum(all(counts[part] > 1 for part in parts) for parts in divided) / len(divided)
        # Words of names recur, as in two kinds of terriers; parts between commas do not.
        some = sum(any(counts[part] > 1 for part in parts) for parts in divided) / len(divided)
        if whole > SHARED or (separator == "," and some > SHARED):
            return separator, whole < MOST or separator == " "  # Audi S4 Sedan 2012 and Audi TT Coupe 2012
    return None, False


def _check_width(path: str, number: int, row: Sequence[str], table: Cells) -> str:
    """Return the image of a row."""
    if len(row) != len(table.names) or not row[table.image].strip():
        raise UserError(f"{path}: row {number} has {len(row)} cells for {len(table.names)} columns, or no image")
    return row[table.image].strip()


def _names(label: Label, separator: str | None, known: Collection[str]) -> set[str]:
    if isinstance(label, tuple):
        return {*label}
    return {label} if label in known else _divide(label, separator)


def _read_cells(labels: Mapping[int, tuple[str, Label]], separator: str | None, known: Collection[str]) -> Found:
    found: Found = {}
    first: dict[str, int] = {}
    for number, (image, label) in labels.items():
        names = _names(label, separator, known)
        at = first.setdefault(image, number)  # a table may have a row for each class of an image
        found[at] = image, tuple(sorted(names | {*(found[at][1] if at in found else ())}))
    return found


def _check_names(
    tables: Mapping[str, str],
    labels: Mapping[str, Mapping[int, tuple[str, Label]]],
    found: Mapping[str, Found],
    known: Collection[str],
) -> None:
    """Refuse a class of whose text another separator makes names of others, as cat/dog beside cat and dog."""
    listed = {
        name for rows in labels.values() for _, label in rows.values() if isinstance(label, tuple) for name in label
    }
    names = {name for split in labels for _, own in found[split].values() for name in own}
    for split in labels:
        for number, (image, own) in found[split].items():
            for name in {*own} - listed - {*known}:
                parts = {part.strip() for part in OTHERS.split(name)}
                if len(parts) > 1 and parts <= names:
                    raise UserError(
                        f"{tables[split]}: row {number}: {image} has the class {name!r}, whose parts are classes of "
                        "others; divide the classes of an image by one character, such as |, or, if each has one "
                        "class, take ",
                        Option("--task", "classify"),
                        " (data.name=imagenet)",
                    )


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


def _classes_of(tables: Mapping[str, str], found: Mapping[str, Found]) -> tuple[str, ...]:
    names = {name for rows in found.values() for _, labels in rows.values() for name in labels}
    if not names or not all(map(is_number, names)):
        return tuple(sorted(names))
    count = max(map(int, names)) + 1
    if count > MAX_UNUSED + 10 * len(names):
        raise UserError(
            f"{_paths(tables)}: labels are {len(names)} numbers up to {count - 1}, which count classes from 0; name "
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
    shown = {number: (row.path, ", ".join(classes[label] for label in row.labels)) for number, row in rows.items()}
    files.require_some(path)
    return [rows[number] for number in once(path, shown, notes)]
