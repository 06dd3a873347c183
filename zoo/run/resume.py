"""Going on with a run from its newest checkpoint: its tensors, settings and progress, and whether the data changed.

All of that is in the folder of the checkpoint. Runs that older versions began have their record of the data in the
folder of the run, and their progress and loader in its events alone.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from zoo.data import record
from zoo.data.errors import UserError
from zoo.data.formats import regular
from zoo.data.parsing import parsing
from zoo.data.record import DataRecord, SplitChange, SplitRecord
from zoo.distributed.group import Group
from zoo.logs import journal
from zoo.logs.journal import Journal, NullJournal
from zoo.run import checkpoint, progress, weights
from zoo.run.folder import FolderLock
from zoo.run.progress import FilesOf, Progress
from zoo.run.weights import Print
from zoo.trainer import state
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import Trainer
from zoo.trainer.update import SCALE_KEY
from zoo.weights import files
from zoo.weights.match import require_match

DATA_FORMAT = "1"
SPLITS = {"train": "training", "val": "validation"}
ACCEPT = "--accept-changed-data"
KEPT = ("framework", "channels_last", "loader")  # which a run keeps where its recipe leaves them open


def claim(run: str, lock: FolderLock) -> list[str]:
    """Lock the run to resume, before the minutes that reading data may take; return what was mended."""
    lock.acquire(run)
    return [*journal.check(run), *checkpoint.set_damaged_aside(run)]


def begun(group: Group, run: str | None) -> dict[str, Any]:
    """Return the record of the checkpoint that a run goes on from; empty for a new run. A collective call.

    Those of older versions lack the loader, which is in the journal of their runs.
    """
    record: dict[str, Any] = {}
    path = checkpoint.latest(run) if run and group.rank == 0 else None
    if run and path:
        record = checkpoint.load_record(path)
        if "loader" not in record:
            loaders = [event["loader"] for event in journal.history(run) if "loader" in event]
            record["loader"] = loaders[-1] if loaders else None
        record = {key: record.get(key) for key in KEPT}
    return group.all_gather(record)[0]


def load(
    path: str, trainer: Trainer, plan: Plan, global_batch: int, classes: Sequence[str], print_line: Print
) -> tuple[int, str]:
    """Load a checkpoint of the run into its trainer.

    Args:
        path: folder of the checkpoint.
        trainer: receives the tensors; of a sharded parameter it reads its own rows.
        plan: of the trainer.
        global_batch: of the recipe.
        classes: names of the classes of the data.
        print_line: receives lines for the console.

    Returns:
        The updates done so far, and the origin of the run's weights, in words.

    Raises:
        UserError: the checkpoint does not hold exactly the tensors of the trainer, or has another global batch.
    """
    sharded = {param.name: (param.shape[0], *param.rows) for param in trainer.params if param.rows}
    shapes = state.shapes(trainer.params, plan, trainer.statistics)
    rows = {}
    for name in (*shapes, *(f"momentum/{name}" for name in sharded)):
        parameter = name.rpartition("/")[2]  # optimizer/<slot>/<parameter> has its rows
        if parameter in sharded:
            rows[name] = sharded[parameter]
    loaded, record = checkpoint.load_checkpoint(path, rows)
    check_record(record, path)
    tensors = {state.current_key(name): array for name, array in loaded.items()}
    tensors = _switch_average(tensors, [param.name for param in trainer.params], plan, path, print_line)
    tensors, shapes = _match_statistics(tensors, shapes, path, print_line)
    require_match(tensors, shapes, path)
    if record["global_batch"] != global_batch:
        raise UserError(
            f"--resume: {path} was written with a global batch of {record['global_batch']}, now it "
            f"is {global_batch}: the samples would not continue where they stopped; set "
            "train.batch and train.accumulate so that batch x accumulate x processes is the same, or give "
            "--global-batch keep"
        )
    weights.warn_of_other_classes(record["classes"], classes, path, print_line)
    if not plan.adapts_scale:
        tensors[SCALE_KEY] = np.array(plan.first_scale, np.float32)  # perhaps not that of the checkpoint
    trainer.load_state_dict(tensors)
    return record["step"], record["weights"]


def add_events(
    log: Journal | NullJournal, folder: str, first_step: int, path: str | None, verdict: "Verdict", **changeable: Any
) -> None:
    """Add `resume`, and the events that a kill has prevented; link `last` and `best`.

    Args:
        log: of the run.
        folder: of the run.
        first_step: updates done so far.
        path: of the checkpoint to go on from, if any.
        verdict: on the data.
        changeable: fields of `resume`.
    """
    log.add("resume", step=first_step, path=path, **changeable)
    if verdict.change:
        log.add("data_changed", first_step=first_step, **verdict.change)
    last = log.last("save")
    if first_step and (last is None or last["step"] < first_step):
        log.add("save", step=first_step, path=path)  # a kill came after the checkpoint
    checkpoint.restore_links(folder, log, verdict.progress.evaluations, first_step)


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


def read_progress(run: str, path: str, files_of: FilesOf) -> Progress:
    """Read the progress of a run from its checkpoint, that of an older version from its events."""
    file = os.path.join(path, checkpoint.PROGRESS)
    return progress.read(file) if os.path.exists(file) else progress.of_events(journal.history(run), files_of)


def read_data_record(run: str, path: str) -> DataRecord | None:
    """Read the record of the data from a checkpoint, that of an older version from its run; None if there is none.

    Raises:
        UserError: it is damaged, or of another version of this program.
    """
    candidates = [os.path.join(folder, checkpoint.DATA) for folder in (path, run)]
    file_path = next(filter(os.path.exists, candidates), None)
    if file_path is None:
        return None
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
    done, before, notes = read_progress(run, path, files_of), read_data_record(run, path), list[str]()
    if before is None:  # an older version was killed before it wrote one
        return Verdict(current, done)
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
    done.unreadable.difference_update(mended)
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


def check_record(record: Mapping[str, Any], path: str) -> None:
    """Raise UserError if a checkpoint's record lacks what a run needs to go on."""
    classes = record.get("classes")
    if not isinstance(record.get("weights"), str) or type(record.get("global_batch")) is not int:
        raise UserError(f"{path}: {files.RECORD} lacks the weights or the global batch; use another checkpoint")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise UserError(f"{path}: {files.RECORD} lacks the names of the classes; use another checkpoint")


def _switch_average(
    tensors: dict[str, np.ndarray], names: Sequence[str], plan: Plan, path: str, print_line: Print
) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint with moving averages if and only if the plan has them."""
    has_them = any(key.startswith(state.EMA_PREFIX) for key in tensors)
    if plan.ema and not has_them:
        print_line(f"train.ema: {path} has no moving average; it starts from these weights")
        return {**tensors, **{state.ema_key(name): tensors[name] for name in names if name in tensors}}
    if has_them and not plan.ema:
        print_line(f"train.ema is off: the moving average in {path} is dropped")
        return {key: array for key, array in tensors.items() if not key.startswith(state.EMA_PREFIX)}
    return tensors


def _match_statistics(
    tensors: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]], path: str, print_line: Print
) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """Return a checkpoint and the trainer's shapes without running statistics of the loss that only one of them has."""
    found, needed = (
        sorted(key for key in keys if key.startswith(state.OBJECTIVE_PREFIX)) for keys in (tensors, shapes)
    )
    if needed and not found:
        print_line(f"{path} has no running statistics of the loss ({', '.join(needed)}): they start anew")
        return tensors, {key: shape for key, shape in shapes.items() if key not in needed}
    if found and not needed:
        print_line(f"this loss has no running statistics: those in {path} are dropped ({', '.join(found)})")
        return {key: array for key, array in tensors.items() if key not in found}, shapes
    return tensors, shapes
