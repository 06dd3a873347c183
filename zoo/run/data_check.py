"""The check of the data before a run: by rank 0, while the other ranks wait."""

import os
from typing import Any, NamedTuple

from zoo.data import audit
from zoo.distributed.group import Group

TIMEOUT = 600.0  # seconds; what is looked at is bounded (data/audit.py), but a file system may be slow


class DataCheck(NamedTuple):
    """What the check found.

    Attributes:
        lines: for the log; none on other ranks, and none for data without files.
        table: samples of every class as CSV, "" if they are not known.
    """

    lines: tuple[str, ...] = ()
    table: str = ""


def check(group: Group, settings: Any, train_set: Any, val_set: Any, eval_only: bool = False) -> DataCheck:
    """Check both splits by names and sizes. A collective call.

    Args:
        settings: the section `data` of the recipe.
        train_set, val_set: the splits.
        eval_only: whether the run only evaluates, perhaps some of the classes: then missing ones pass.

    Raises:
        UserError: on rank 0, if a class is missing from a split and the recipe does not allow it.
    """
    found = DataCheck()
    with group.time_limit(TIMEOUT, "the check of the data by rank 0"):
        if group.rank == 0:
            allowed_by = audit.KEY if settings.allow_missing_classes else "--eval-only" if eval_only else ""
            found = _check(train_set, val_set, allowed_by)
        group.all_gather(None)
    return found


def _check(train_set: Any, val_set: Any, allowed_by: str) -> DataCheck:
    result = audit.examine(train_set, val_set)
    if result is None:
        return DataCheck()
    return DataCheck(audit.lines(result, allowed_by), result.table)


def write_table(found: DataCheck, folder: str) -> None:
    """Write the table into the folder of a run, if there is one."""
    if found.table:
        with open(os.path.join(folder, audit.TABLE_NAME), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(found.table)
