"""The report of a data set: errors, which stop a run before its first step, and lines for the log."""

import csv
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.audit import classes, copies, sizes
from zoo.data.audit.inventory import Inventory
from zoo.data.errors import UserError

TITLE = "data"
KEY = "data.allow_missing_classes"
MAX_NAMED = 3  # files in a line
TABLE_NAME = "classes.csv"  # in the folder of a run


class Report(NamedTuple):
    """What a check of the data found.

    Attributes:
        summary: one line with the samples of both splits and per class.
        problems: lines about classes, each an error.
        warnings: lines about files and about classes with a single sample.
        table: the samples of every class in both splits as CSV, pixels of scenes; "" if they are not known.
    """

    summary: str
    problems: list[str]
    warnings: list[str]
    table: str


def examine(train_set: Any, val_set: Any, deep: bool = False) -> Report | None:
    """Check both splits of a data set; None for data without files.

    Args:
        train_set, val_set: as `load` of the data set returns them.
        deep: whether contents are read, and nothing is left out however long it takes.
    """
    if not hasattr(train_set, "inventory"):
        return None
    train, val = train_set.inventory(deep), val_set.inventory(deep)
    warnings = []
    single = [train.class_name(label) for label in classes.singles(train)]
    if single and not train.singles_are_normal:
        warnings.append(f"classes with a single training sample: {_first(single)}")
    unseen = classes.unseen(train, val) if deep else []  # the log has them for the masks that are read before a run
    if unseen:
        warnings.append(f"classes that no validation mask shows: {_first(unseen)}")
    for title, inventory in (("training", train), ("validation", val)):
        found = sizes.check(inventory, deep)
        for what, files in (("missing", found.missing), ("tiny", found.tiny)):
            if files:
                part = "" if found.looked_at == inventory.samples else f", of {found.looked_at} that were looked at"
                warnings.append(f"{title} files that are {what}{part}: {_first(files)}")
    copied = copies.find(train, val, deep)
    if copied.pairs:
        first = {right: left for left, right in reversed(copied.pairs)}  # a file may have several copies
        pairs = [f"{right} is {first[right]}" for right in sorted(first)]
        warnings.append(f"validation files that are training files too: {_first(pairs)}")
    return Report(_summary(train, val, copied.limits), classes.problems(train, val), warnings, _table(train, val))


def lines(report: Report, allowed_by: str = "") -> tuple[str, ...]:
    """Return the lines of a report for the log.

    Args:
        allowed_by: what lets missing classes pass, for the log; "" for nothing.

    Raises:
        UserError: classes are missing, and this is not allowed.
    """
    problems = classes.shorten(report.problems)
    if problems and not allowed_by:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise UserError(
            f"the classes of the data are not those of both splits (differences: {len(report.problems)}):\n{listed}\n"
            f"  correct these names and labels, or let them pass with -o {KEY}=true"
        )
    allowed = [f"{TITLE}: passed by {allowed_by}: {problem}" for problem in problems]
    warnings = [f"{TITLE}: warning: {warning}" for warning in report.warnings]
    return f"{TITLE}: {report.summary}", *allowed, *warnings


def _summary(train: Inventory, val: Inventory, limits: Sequence[str]) -> str:
    """Return `train 640 (80/80/80 per class: min/median/max), val 160 (20/20/20), 8 classes`, and what was left out."""
    parts = []
    for title, inventory in (("train", train), ("val", val)):
        counts, text = inventory.counts(), f"{title} {inventory.samples}"
        if inventory.labels is not None and counts is not None and len(counts):
            spread = f"{counts.min()}/{np.median(counts):g}/{counts.max()}"
            text += f" ({spread} per class: min/median/max)" if title == "train" else f" ({spread})"
        parts.append(text)
    parts.append(f"{len(train.classes)} classes")
    if train.singles_are_normal and (single := classes.singles(train)):
        parts.append(f"{len(single)} of them with one sample")
    left_out = [train.uncounted] if train.uncounted else []
    left_out += [f"copies were looked for by {' and '.join(limits)}"] if limits else []
    return "; ".join([", ".join(parts), *left_out])


def _table(train: Inventory, val: Inventory) -> str:
    left, right = train.counts(), val.counts()
    if left is None:
        return ""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["label", "class", "train"] + ([] if right is None else ["val"]))
    columns = [column.tolist() for column in (left, right) if column is not None]
    writer.writerows([label, train.class_name(label), *row] for label, row in enumerate(zip(*columns)))
    return file.getvalue()


def _first(names: Sequence[str]) -> str:
    """Return how many names there are, and the first ones: `7 (a, b, c ...)`."""
    return f"{len(names)} ({', '.join(names[:MAX_NAMED])}{' ...' if len(names) > MAX_NAMED else ''})"
