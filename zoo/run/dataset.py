"""The data of a run: loaded, checked, and compared with those of the checkpoint that it goes on from."""

import inspect
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from zoo import data
from zoo.data import audit, durable, record
from zoo.data.dataset import Relabeled
from zoo.data.errors import UserError, similar_name
from zoo.data.formats import regular
from zoo.data.parsing import parsing
from zoo.data.record import DataRecord, SplitChange, SplitRecord
from zoo.distributed import group as groups
from zoo.distributed.group import Group
from zoo.run import checkpoint, resume
from zoo.run.request import Request
from zoo.run.resume import FilesOf, Progress
from zoo.weights import recorded

DATA_FORMAT = "1"
SPLITS = {"train": "training", "val": "validation"}
ACCEPT = "--accept-changed-data"
CHECK_TIMEOUT = 600.0  # seconds; what is looked at is bounded (data/audit), but a file system may be slow


class Verdict(NamedTuple):
    """Data and progress of a run, on rank 0.

    Attributes:
        record: of the data, for the next checkpoints; its contents are read as when the run began.
        progress: of the run, without what was mended.
        lines: for the console.
        change: fields of the event `data_changed`; None if the data are the same.
    """

    record: DataRecord
    progress: Progress
    lines: tuple[str, ...] = ()
    change: dict[str, Any] | None = None

    def files(self) -> dict[str, bytes]:
        """Return the contents of the files for a checkpoint, by name."""
        return {checkpoint.DATA: _data_content(self.record), checkpoint.PROGRESS: self.progress.content()}


class DataCheck(NamedTuple):
    """What the check found.

    Attributes:
        lines: for the log; none on other ranks, and none for data without files.
        table: samples of every class as CSV, "" if they are not known.
    """

    lines: tuple[str, ...] = ()
    table: str = ""


class Data(NamedTuple):
    """The data set of a run, checked.

    Attributes:
        train_set, val_set: its splits.
        check: classes and sizes.
        record: names and digests.
        verdict: of the comparison with those of the run to resume, with the progress of this.
        files_of: returns the items that a sample is made of.
        loaded_at: seconds of the monotonic clock.
    """

    train_set: Any
    val_set: Any
    check: DataCheck
    record: DataRecord
    verdict: Verdict
    files_of: FilesOf
    loaded_at: float


def load_data(request: Request, group: Group) -> Data:
    """Load both splits of the data set, check them, and compare them with those of the run to resume.

    Args:
        request: the recipe.
        group: all ranks.

    Raises:
        UserError: they cannot be read, are not the same on all ranks, or not those of the run.
    """
    cfg, dataset = request.config, data.find(request.resolved["data.name"].value)
    train_set, val_set = _load_for_evaluation(dataset, request) if request.eval_only else dataset.load(cfg.data)
    checked = audit_data(group, cfg.data, train_set, val_set, request.eval_only)
    current, loaded_at = dataset.describe(train_set, val_set), time.monotonic()
    groups.assert_same(group, "the data set (its checksum)", current.checksum)
    run = None if request.eval_only else request.resume
    files_of = getattr(dataset, "files_of", lambda sample: [sample])
    describe = partial(dataset.describe, train_set, val_set)
    verdict = check_data(group, run, current, describe, files_of, request.accept_changed_data)
    return Data(train_set, val_set, checked, current, verdict, files_of, loaded_at)


def _load_for_evaluation(dataset: Any, request: Request) -> tuple[Any, Any]:
    """Load the splits for an evaluation, where labels are those that the weights were trained with.

    Classes are found by their names. A training split that cannot be opened is not needed.

    Raises:
        UserError: the validation split cannot be opened, or has a class that the weights were not trained on.
    """
    cfg = request.config
    weights = (request.resume and checkpoint.latest(request.resume)) or cfg.weights
    try:
        train_set, val_set = dataset.load(cfg.data)
    except UserError as error:
        if "splits" not in inspect.signature(dataset.load).parameters:  # they come from the same files
            raise
        try:
            train_set, val_set = dataset.load(cfg.data, ("val",))
        except UserError:
            raise error from None
        train_set.notes += (f"without a training split: {str(error).partition(';')[0]}",)
    classes, trained = val_set.classes, recorded.read(weights).classes if weights else ()
    if isinstance(classes, range) or not trained or tuple(classes) == trained:
        return train_set, val_set
    unknown = [name for name in classes if name not in trained]
    moved = any(name in trained and name != there for name, there in zip(classes, trained))
    if unknown and (moved or len(classes) != len(trained)):  # else they may be other names of the same classes
        raise UserError(
            f"{weights} was not trained on the class {unknown[0]!r} of {cfg.data.root}; remove its samples, or "
            f"rename it{similar_name(unknown[0], trained)}"
        )
    return train_set, val_set if unknown else Relabeled(val_set, trained)


def audit_data(group: Group, settings: Any, train_set: Any, val_set: Any, eval_only: bool = False) -> DataCheck:
    """Check both splits by names and sizes. A collective call.

    Args:
        settings: the section `data` of the recipe.
        train_set, val_set: the splits.
        eval_only: whether the run only evaluates, perhaps some of the classes: then missing ones pass.

    Raises:
        UserError: on rank 0, if a class is missing from a split and the recipe does not allow it.
    """
    found = DataCheck()
    with group.time_limit(CHECK_TIMEOUT, "the check of the data by rank 0"):
        if group.rank == 0:
            allowed_by = audit.KEY if settings.allow_missing_classes else "--eval-only" if eval_only else ""
            result = audit.examine(train_set, val_set, evaluates=eval_only)
            found = DataCheck(audit.lines(result, allowed_by), result.table) if result else found
        group.all_gather(None)
    return found


def write_table(found: DataCheck, folder: str) -> None:
    """Write the table into the folder of a run, if there is one."""
    if found.table:
        path = os.path.join(folder, audit.TABLE_NAME)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", opener=durable.fresh) as file:
            file.write(found.table)


def check_data(
    group: Group,
    run: str | None,
    current: DataRecord,
    describe: Callable[[str], DataRecord],
    files_of: FilesOf,
    accept: bool,
) -> Verdict:
    """Compare the data with those of the checkpoint that a run goes on from. A collective call.

    Args:
        group: all ranks.
        run: folder of the run to resume, None for a new run.
        current: record of the data.
        describe: returns it with contents read by another method, `sampled` or `full`.
        files_of: returns the items that a sample is made of.
        accept: whether the run goes on with other data.

    Raises:
        UserError: on every rank, the data are not those of the run, and that is not accepted.
    """
    verdict, refusal = Verdict(current, Progress()), None
    if run and group.rank == 0:
        try:
            verdict = _compare_data(run, current, describe, files_of, accept)
        except UserError as error:
            refusal = str(error)
    refusal = group.all_gather(refusal)[0]
    if refusal:
        raise UserError(refusal)
    return verdict


def read_data_record(path: str) -> DataRecord:
    """Read the record of the data from a checkpoint.

    Raises:
        UserError: it is missing, damaged, or of another version of this program.
    """
    file_path = os.path.join(path, checkpoint.DATA)
    with parsing(f"{file_path} cannot be read"):
        with safe_open(file_path, "numpy") as file:
            metadata = file.metadata() or {}
            if metadata["format"] != DATA_FORMAT:
                raise ValueError(f"its format is {metadata['format']}")
            splits = []
            for name in SPLITS:
                facts = regular.parse_json(metadata[name])
                text, digests = file.get_tensor(f"{name}.text"), file.get_tensor(f"{name}.digests")
                if digests.dtype != np.uint32 or digests.ndim != 1 or text.dtype != np.uint8:
                    raise ValueError(f"{name}: tensors of other types")
                classes = facts["classes"]
                names = classes if isinstance(classes, int) else tuple(map(str, classes))
                splits.append(SplitRecord(int(facts["samples"]), names, text.tobytes(), digests))
                record.items(splits[-1])
        return DataRecord(metadata["checksum"], metadata["method"], *splits)


def _data_content(data: DataRecord) -> bytes:
    metadata = {"format": DATA_FORMAT, "checksum": data.checksum, "method": data.method}
    tensors = {}
    for name in SPLITS:
        split: SplitRecord = getattr(data, name)
        metadata[name] = json.dumps({"samples": split.samples, "classes": split.classes})
        tensors[f"{name}.text"], tensors[f"{name}.digests"] = np.frombuffer(split.text, np.uint8), split.digests
    return save(tensors, metadata)


def _compare_data(
    run: str, current: DataRecord, describe: Callable[[str], DataRecord], files_of: FilesOf, accept: bool
) -> Verdict:
    path = checkpoint.latest(run)
    if path is None:  # nothing was trained that could go on
        return Verdict(current, Progress())
    done = resume.parse_progress(os.path.join(path, checkpoint.PROGRESS))
    before, notes = read_data_record(path), list[str]()
    if before.method != current.method:
        current = describe(before.method)
    if before.checksum == current.checksum:
        return Verdict(before, done)
    changes = {
        name: record.compare(getattr(before, name), getattr(current, name), done.unreadable.__contains__)
        for name in SPLITS
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
        return Verdict(before, done)
    done.mend(mended, files_of)
    return Verdict(current, done, tuple(notes), _event(current, changes, bool(lines)))


def _refusal(lines: Sequence[str]) -> UserError:
    return UserError(
        "\n  ".join(
            [
                "--resume: the data are not those of this run any more:",
                *lines,
                f"restore them, or go on with them as they are by {ACCEPT}, which is recorded",
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
