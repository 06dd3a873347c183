"""The record of the data in a run's folder, and its comparison with the data that a resume finds.

Rank 0 compares and decides, while the other ranks wait.
"""

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from zoo.data import durable, record
from zoo.data.errors import UserError
from zoo.data.formats import budgeted_json
from zoo.data.parsing import parsing
from zoo.data.record import DataRecord, SplitChange, SplitRecord
from zoo.distributed.group import Group
from zoo.logs import journal
from zoo.logs.journal import Event

FILE = "data_record.safetensors"
FORMAT = "1"
SPLITS = {"train": "training", "val": "validation"}
FLAG = "--accept-changed-data"

FilesOf = Callable[[str], Sequence[str]]  # name of a sample -> names of its items


class Verdict(NamedTuple):
    """What a resume found.

    Attributes:
        lines: for the console.
        change: fields of the event `data_changed`; None if the data are the same.
        record: to write into the run's folder; None if what is there stays.
    """

    lines: tuple[str, ...] = ()
    change: dict[str, Any] | None = None
    record: DataRecord | None = None


def check(
    group: Group,
    folder: str | None,
    current: DataRecord,
    describe: Callable[[str], DataRecord],
    files_of: FilesOf,
    accept: bool,
) -> Verdict:
    """Compare the data with those that a run has recorded. A collective call.

    Args:
        group: all ranks.
        folder: of the run to resume, None for a new run.
        current: record of the data.
        describe: returns it with contents read by another method, `sampled` or `full`.
        files_of: returns the items that a sample is made of.
        accept: whether the run goes on with other data.

    Returns:
        What was found; on rank 0 alone.

    Raises:
        UserError: on every rank, the data are not those of the run, and that is not accepted.
    """
    verdict, refusal = Verdict(record=current), None
    if folder and group.rank == 0:
        try:
            verdict = _check(folder, current, describe, files_of, accept)
        except UserError as error:
            refusal = str(error)
    refusal = group.all_gather(refusal)[0]
    if refusal:
        raise UserError(refusal)
    return verdict


def write(folder: str, data: DataRecord) -> None:
    """Write the record of the data into the folder of a run, completely or not at all."""
    metadata = {"format": FORMAT, "checksum": data.checksum, "method": data.method}
    tensors = {}
    for name in SPLITS:
        split: SplitRecord = getattr(data, name)
        metadata[name] = json.dumps({"samples": split.samples, "classes": split.classes})
        tensors[f"{name}.text"], tensors[f"{name}.digests"] = np.frombuffer(split.text, np.uint8), split.digests
    path = os.path.join(folder, FILE)
    durable.replace(path, save(tensors, metadata), f"{path}.writing")


def read(folder: str) -> DataRecord | None:
    """Read the record in the folder of a run; None if there is none.

    Raises:
        UserError: it is damaged, or of another version of this program.
    """
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return None
    with parsing(f"{path} cannot be read"):
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            if metadata["format"] != FORMAT:
                raise ValueError(f"its format is {metadata['format']}")
            splits = []
            for name in SPLITS:
                facts, text, digests = (
                    budgeted_json.loads(metadata[name]),
                    file.get_tensor(f"{name}.text"),
                    file.get_tensor(f"{name}.digests"),
                )
                if digests.dtype != np.uint32 or digests.ndim != 1 or text.dtype != np.uint8:
                    raise ValueError(f"{name}: tensors of other types")
                classes = facts["classes"]
                names = classes if isinstance(classes, int) else tuple(map(str, classes))
                splits.append(SplitRecord(int(facts["samples"]), names, text.tobytes(), digests))
                record.items(splits[-1])
        return DataRecord(metadata["checksum"], metadata["method"], *splits)


def unreadable(events: Sequence[Event], files_of: FilesOf = lambda sample: [sample]) -> set[str]:
    """Return the items that a run could not read and that have not been mended since.

    Args:
        events: of the run.
        files_of: returns the items that a sample is made of; by default it is one itself.
    """
    names: set[str] = set()
    for event in events:
        if event["event"] in ("bad", "unreadable"):
            names.update(files_of(event["name"]))
        elif event["event"] == "data_changed":
            names.difference_update(event["mended"])
    return names


def _check(
    folder: str, current: DataRecord, describe: Callable[[str], DataRecord], files_of: FilesOf, accept: bool
) -> Verdict:
    events, notes = journal.history(folder), list[str]()
    try:
        before = read(folder)
    except UserError as error:
        before, notes = None, [f"{error}: only the checksum of the data is compared"]
    if before is None:
        return _compare_checksums(events, current, describe, accept, notes)
    if before.method != current.method:
        current = describe(before.method)
    if before.checksum == current.checksum:
        return Verdict()
    may_change = unreadable(events, files_of)
    changes = {
        name: record.compare(getattr(before, name), getattr(current, name), may_change.__contains__) for name in SPLITS
    }
    lines = [line for name, title in SPLITS.items() for line in record.explain(title, changes[name])]
    if lines and not accept:
        raise _refusal(lines)
    mended = [name for change in changes.values() for name in change.mended]
    if mended:
        notes.append(f"data: mended since they could not be read, which is no change: {record.shorten(mended)}")
    if lines:
        notes += ["data: changed since the run began, and accepted:", *(f"  {line}" for line in lines)]
    if not lines and not mended:  # the same contents in another form, such as packs
        return Verdict()
    return Verdict(tuple(notes), _event(current, changes, bool(lines)), current)


def _compare_checksums(
    events: Sequence[Event],
    current: DataRecord,
    describe: Callable[[str], DataRecord],
    accept: bool,
    notes: Sequence[str],
) -> Verdict:
    """Compare with a run that has recorded the checksum alone, as older versions did."""
    begin = next((event for event in events if event["event"] == "begin"), {})
    known = [event for event in events if event["event"] in ("load", "data_changed") and "checksum" in event]
    method = begin.get("checksum_method")
    if not known or method is None:  # nothing was trained, or by a version whose checksum covers no contents
        return Verdict(tuple(notes), record=current)
    before, method = known[-1]["checksum"], str(known[-1].get("checksum_method", method))
    now = current if current.method == method else describe(method)
    if now.checksum == before:
        return Verdict(tuple(notes), record=current)
    line = f"the checksum was {before} and is {now.checksum}; without a {FILE} nothing tells what has changed"
    if not accept:
        raise _refusal([line])
    return Verdict((*notes, f"data: changed since the run began, and accepted: {line}"), _event(now, {}, True), now)


def _refusal(lines: Sequence[str]) -> UserError:
    return UserError(
        "\n  ".join(
            [
                "--resume: the data are not those of this run any more:",
                *lines,
                f"restore them, or go on with them as they are by {FLAG}, which is recorded",
            ]
        )
    )


def _event(current: DataRecord, changes: dict[str, SplitChange], accepted: bool) -> dict[str, Any]:
    counts = {name: change.counts for name, change in changes.items()}
    mended = [name for change in changes.values() for name in change.mended]
    return {
        "checksum": current.checksum,
        "checksum_method": current.method,
        "train_samples": current.train.samples,
        "val_samples": current.val.samples,
        "accepted": accepted,
        "counts": counts,
        "mended": mended,
    }
