"""The data of a run, loaded and checked, and class weights that balance them."""

import inspect
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from zoo import data
from zoo.data import audit, durable, order
from zoo.data.dataset import Relabeled
from zoo.data.errors import UserError, similar_name
from zoo.data.record import DataRecord
from zoo.distributed import group as groups
from zoo.distributed.group import Group
from zoo.weights import recorded

CHECK_TIMEOUT = 600.0  # seconds; what is looked at is bounded (data/audit), but a file system may be slow


class Audit(NamedTuple):
    """Findings of the check.

    Attributes:
        lines: for the log; none on other ranks, and none for data without files.
        table: samples of every class as CSV, "" if they are not known.
    """

    lines: tuple[str, ...] = ()
    table: str = ""


class Data(NamedTuple):
    """The data set of a run, checked.

    Attributes:
        describe: returns the record with contents read by another method, `sampled` or `full`.
        files_of: returns the items that a sample is made of.
        loaded_at: seconds of the monotonic clock.
    """

    train_set: Any
    val_set: Any
    check: Audit
    record: DataRecord
    describe: Callable[[str], DataRecord]
    files_of: Callable[[str], Sequence[str]]
    loaded_at: float


def load_data(name: str, settings: Any, group: Group, evaluated: str | None = None) -> Data:
    """Load both splits of a data set and check them.

    Args:
        evaluated: weights that are evaluated only, "" for those of a new run; None for a training.
    """
    dataset, eval_only = data.find(name), evaluated is not None
    train_set, val_set = _load_for_evaluation(dataset, settings, evaluated) if eval_only else dataset.load(settings)
    checked = audit_data(group, settings, train_set, val_set, eval_only)
    current, loaded_at = dataset.describe(train_set, val_set), time.monotonic()
    groups.assert_same(group, "the data set (its checksum)", current.checksum)
    files_of = getattr(dataset, "files_of", lambda sample: [sample])
    describe = partial(dataset.describe, train_set, val_set)
    return Data(train_set, val_set, checked, current, describe, files_of, loaded_at)


def _load_for_evaluation(dataset: Any, settings: Any, weights: str | None) -> tuple[Any, Any]:
    """Load the splits for an evaluation, where labels are those that the weights were trained with.

    Classes are found by their names. A training split that cannot be opened is not needed.
    """
    try:
        train_set, val_set = dataset.load(settings)
    except UserError as error:
        if "splits" not in inspect.signature(dataset.load).parameters:  # they come from the same files
            raise
        try:
            train_set, val_set = dataset.load(settings, ("val",))
        except UserError:
            raise error from None
        train_set.notes += (f"without a training split: {error}",)
    classes, trained = val_set.classes, recorded.read(weights).classes if weights else ()
    if isinstance(classes, range) or not trained or tuple(classes) == trained:
        return train_set, val_set
    unknown = [name for name in classes if name not in trained]
    moved = any(name in trained and name != there for name, there in zip(classes, trained))
    if unknown and (moved or len(classes) != len(trained)):  # else they may be other names of the same classes
        raise UserError(
            f"{weights} was not trained on the class {unknown[0]!r} of {settings.root}; remove its samples, or "
            f"rename it{similar_name(unknown[0], trained)}"
        )
    return train_set, val_set if unknown else Relabeled(val_set, trained)


def audit_data(group: Group, settings: Any, train_set: Any, val_set: Any, eval_only: bool = False) -> Audit:
    """Check both splits by names and sizes. A collective call.

    Args:
        eval_only: whether the run only evaluates, perhaps some of the classes: then missing ones pass.
    """
    found = Audit()
    with group.time_limit(CHECK_TIMEOUT, "the check of the data by rank 0"):
        if group.rank == 0:
            allowed_by = audit.KEY if settings.allow_missing_classes else "--eval-only" if eval_only else ""
            result = audit.examine(train_set, val_set, evaluates=eval_only)
            found = Audit(audit.lines(result, allowed_by), result.table) if result else found
        group.all_gather(None)
    return found


def write_table(found: Audit, folder: str) -> None:
    if found.table:
        durable.write(os.path.join(folder, audit.TABLE_NAME), found.table.encode(errors="surrogateescape"))


def resolve_class_weights(task: Any, train_set: Any, classes: int) -> tuple[Any, tuple[str, ...]]:
    """Return section `task:` with numbers as class weights, and lines about balanced ones for the user."""
    given = getattr(task, "class_weights", None)
    if given is None:
        return task, ()
    if given != "balanced":
        if len(given) != classes:
            raise UserError(
                f"task.class_weights: {len(given)} weights for {classes} classes; give one for each, in order"
            )
        return task, ()
    inventory = train_set.inventory(False) if hasattr(train_set, "inventory") else None
    counts = inventory.counts() if inventory else None
    if inventory is None or counts is None:
        raise UserError(
            "task.class_weights: balanced weights need the number of samples of each class, which this data set does "
            "not know; give a weight for each class"
        )
    weights = balanced_class_weights(order.per_epoch(counts, getattr(train_set.settings, "balance", 0.0)), classes)
    present = np.flatnonzero(counts)
    ends = (present[at(weights[present])] for at in (np.argmax, np.argmin))
    extremes = " to ".join(f"{weights[label]:.3g} ({inventory.class_name(label)})" for label in ends)
    return replace(task, class_weights=tuple(weights.tolist())), (f"task.class_weights: balanced: {extremes}",)


def balanced_class_weights(shown: np.ndarray, classes: int) -> np.ndarray:
    """Return the weights with which all classes count equally, and the mean sample as 1; 1 for a class without samples.

    Args:
        classes: outputs of the model, perhaps more than the data have classes.
    """
    weights = np.ones(classes)
    weights[: len(shown)][shown > 0] = shown.sum() / ((shown > 0).sum() * shown[shown > 0])
    return weights
