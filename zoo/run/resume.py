"""Going on with a run from its newest checkpoint: its tensors, settings and progress.

A resume reads the files of the checkpoint's folder, which zoo/run/checkpoint.py lists, and of the run's folder
`config.yaml`, without which the recipe in the checkpoint counts, and `events.jsonl`, to which it adds.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from safetensors import safe_open

from zoo.config.schema import Config
from zoo.data import record as records
from zoo.data.errors import Option, UserError, parsing
from zoo.data.formats import regular
from zoo.data.record import DataRecord, SplitChange, SplitRecord
from zoo.distributed.group import Group
from zoo.logs import journal
from zoo.logs.journal import Journal
from zoo.run import checkpoint, weights
from zoo.run.dataset import Data
from zoo.run.folder import FolderLock
from zoo.run.job import Job
from zoo.run.progress import Progress, parse_progress
from zoo.run.weights import Print
from zoo.trainer import state
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import Trainer
from zoo.trainer.update import SCALE_KEY
from zoo.weights import files, recorded
from zoo.weights.match import require_match

KEPT = ("framework", "channels_last", "loader")  # which a run keeps where its recipe leaves them open
DATA_FORMAT = "1"
SPLITS = {"train": "training", "val": "validation"}


def claim(run: str, lock: FolderLock) -> list[str]:
    """Lock the run to resume, before the minutes that reading data may take; return what was mended."""
    lock.acquire(run)
    if any(event.get("speed") for event in journal.history(run)):
        raise UserError(
            Option("--resume"), f": {run} is a run of --speed, which leaves no checkpoint to go on from; start anew"
        )
    return [*journal.check(run), *checkpoint.set_damaged_aside(run)]


def begun(group: Group, run: str | None) -> dict[str, Any]:
    """Return the record of the checkpoint that a run goes on from; empty for a new run. A collective call."""
    record: dict[str, Any] = {}
    path = checkpoint.latest(run) if run and group.rank == 0 else None
    if path:
        found = checkpoint.load_record(path)
        record = {key: found.get(key) for key in KEPT}
    return group.all_gather(record)[0]


class DataState(NamedTuple):
    """Data and progress of a run, on rank 0.

    Attributes:
        record: of the data, for the next checkpoints; its contents are read as when the run began.
        change: fields of the event `data_changed`; None if the data are the same.
    """

    record: DataRecord
    progress: Progress
    lines: tuple[str, ...] = ()
    change: dict[str, Any] | None = None

    def files(self) -> dict[str, bytes]:
        """Return the contents of the files for a checkpoint, by name."""
        return {checkpoint.DATA: _data_content(self.record), checkpoint.PROGRESS: self.progress.content()}


def check_data(group: Group, run: str | None, data: Data, accept: bool) -> DataState:
    """Compare the data with those of the checkpoint that a run goes on from. A collective call."""
    data_state, refusal = DataState(data.record, Progress()), None
    if run and group.rank == 0:
        try:
            data_state = _compare_data(run, data, accept)
        except UserError as error:
            refusal = error
    message = group.all_gather(refusal and str(refusal))[0]
    if message:
        raise refusal or UserError(message)
    return data_state


def restore(cfg: Config, job: Job, run: str | None, print_line: Print, eval_only: bool = False) -> tuple[int, str]:
    """Load the tensors of the last checkpoint of the run to resume, or else the initial ones; called by all ranks.

    One process per machine goes first, because it may have to download a file.

    Args:
        run: folder of the run to continue, None for a new run.
        eval_only: whether the weights are evaluated only: of a checkpoint with moving averages both kinds.

    Returns:
        The updates done so far, and the origin of the weights, in words.
    """
    if files.is_onnx(cfg.weights):
        from zoo.run import exported

        return 0, exported.origin(cfg.weights, cfg, job.val_set.classes, print_line)
    goes_first = job.group.launch.local_rank == 0
    restored = _restore(cfg, job, run, print_line, eval_only) if goes_first else None
    job.group.all_gather(None)
    return restored or _restore(cfg, job, run, print_line, eval_only)


def load(
    path: str, trainer: Trainer, plan: Plan, global_batch: int, classes: Sequence[str], print_line: Print
) -> tuple[int, str]:
    """Load a checkpoint of the run into its trainer.

    Args:
        trainer: receives the tensors; of a sharded parameter it reads its own rows.

    Returns:
        The updates done so far, and the origin of the run's weights, in words.
    """
    sharded = {param.name: (param.shape[0], *param.rows) for param in trainer.params if param.rows}
    shapes = state.shapes(trainer.params, plan, trainer.statistics)
    rows = {}
    for name in shapes:
        parameter = name.rpartition("/")[2]  # optimizer/<slot>/<parameter> has its rows
        if parameter in sharded:
            rows[name] = sharded[parameter]
    tensors, record = checkpoint.load_checkpoint(path, rows)
    check_record(record, path)
    tensors = _switch_average(tensors, [param.name for param in trainer.params], plan, path, print_line)
    tensors, shapes = _match_statistics(tensors, shapes, path, print_line)
    require_match(tensors, shapes, path)
    if record["global_batch"] != global_batch:
        raise UserError(
            Option("--resume"),
            f": {path} was written with a global batch of {record['global_batch']}, now it "
            f"is {global_batch}: the samples would not continue where they stopped; set "
            "train.batch and train.accumulate so that batch x accumulate x processes is the same, or give "
            "--global-batch keep",
        )
    recorded.warn_of_other_classes(record["classes"], classes, path, print_line)
    if not plan.adapts_scale:
        tensors[SCALE_KEY] = np.array(plan.first_scale, np.float32)  # perhaps not that of the checkpoint
    trainer.load_state_dict(tensors)
    return record["step"], record["weights"]


def add_events(
    log: Journal, folder: str, first_step: int, path: str | None, progress: Progress, **changeable: Any
) -> None:
    """Add `resume`, and the events that a kill has prevented; link `last` and `best`.

    Args:
        first_step: updates done so far.
    """
    log.add("resume", step=first_step, path=path, **changeable)
    last = log.last("save")
    if first_step and (last is None or last["step"] < first_step):
        log.add("save", step=first_step, path=path)  # a kill came after the checkpoint
    restore_links(folder, log, progress.evaluations, first_step)


def restore_links(folder: str, log: Journal, evaluations: Mapping[int, float], step: int) -> None:
    """Link `last` and `best` of a run that goes on, as a kill, or damage to a checkpoint, may have prevented.

    Args:
        log: of the run; it gets an event where another checkpoint is the best than it says, unless the evaluation
            of that checkpoint has no event itself and is repeated, which adds both.
    """
    if step:
        checkpoint.link(folder, "last", step)
    best, told, evaluated = checkpoint.find_best(folder, evaluations), log.last("best"), log.last("eval")
    if best:
        checkpoint.link(folder, "best", best.step)
        is_told = told is not None and told["step"] == best.step
        is_repeated = best.step == step and (evaluated is None or evaluated["step"] != step)
        if not is_told and not is_repeated:
            log.add("best", step=best.step, path=checkpoint.path_of(folder, best.step))


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


def read_data_record(path: str) -> DataRecord:
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
                records.items(splits[-1])
        return DataRecord(metadata["checksum"], metadata["method"], *splits)


def _data_content(record: DataRecord) -> bytes:
    metadata = {"format": DATA_FORMAT, "checksum": record.checksum, "method": record.method}
    tensors = {}
    for name in SPLITS:
        split: SplitRecord = getattr(record, name)
        metadata[name] = json.dumps({"samples": split.samples, "classes": split.classes})
        tensors[f"{name}.text"], tensors[f"{name}.digests"] = np.frombuffer(split.text, np.uint8), split.digests
    return files.content(tensors, metadata)


def _compare_data(run: str, data: Data, accept: bool) -> DataState:
    path, current = checkpoint.latest(run), data.record
    if path is None:  # nothing was trained that could go on
        return DataState(current, Progress())
    done = parse_progress(os.path.join(path, checkpoint.PROGRESS))
    before, notes = read_data_record(path), list[str]()
    if before.method != current.method:
        current = data.describe(before.method)
    if before.checksum == current.checksum:
        return DataState(before, done)
    changes = {
        name: records.compare(getattr(before, name), getattr(current, name), done.unreadable.__contains__)
        for name in SPLITS
    }
    lines = [line for name, title in SPLITS.items() for line in records.explain(title, changes[name])]
    if lines and not accept:
        raise _refusal(lines)
    mended = [name for change in changes.values() for name in change.mended]
    if mended:
        notes.append(f"data: mended since they could not be read, which is no change: {records.shorten(mended)}")
    if lines:
        notes += ["data: changed since the run began, and accepted:", *(f"  {line}" for line in lines)]
    if not lines and not mended:  # the same contents in another form, such as packs
        return DataState(before, done)
    done.mend(mended, data.files_of)
    return DataState(current, done, tuple(notes), _event(current, changes, bool(lines)))


def _refusal(lines: Sequence[str]) -> UserError:
    listed = "\n  ".join(
        [": the data are not those of this run any more:", *lines, "restore them, or go on with them as they are by "]
    )
    return UserError(Option("--resume"), listed, Option("--accept-changed-data", True), ", which is recorded")


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


def _restore(cfg: Config, job: Job, run: str | None, print_line: Print, eval_only: bool) -> tuple[int, str]:
    path = checkpoint.latest(run) if run else None
    if path:
        return load(path, job.trainer, job.plan, job.clock.global_batch, job.val_set.classes, print_line)
    tensors, origin = _start(cfg, job, print_line, eval_only)
    job.trainer.load_state_dict(tensors)
    return 0, origin


def _start(cfg: Config, job: Job, print_line: Print, eval_only: bool) -> tuple[weights.Tensors, str]:
    """Return the tensors of a new run, with moving averages where the plan has them, and the origin of the weights."""
    if cfg.weights:
        cfg = replace(cfg, weights=recorded.resolve_pointer(cfg.weights))
    arguments = job.spec, job.arch, job.trainer.params, job.val_set.classes
    if not (eval_only and job.plan.ema and cfg.weights and recorded.has_averages(cfg.weights)):
        tensors, origin = weights.initial(cfg, *arguments, print_line)
        return state.with_averages(tensors, job.plan), origin
    averages, _ = weights.initial(cfg, *arguments, lambda line: None)
    tensors, origin = weights.initial(
        replace(cfg, weights=recorded.model_file(cfg.weights, raw=True)), *arguments, print_line
    )
    print_line(f"weights: {cfg.weights} has a moving average (EMA) too, which is evaluated beside them")
    return {**tensors, **{state.ema_key(name): array for name, array in averages.items()}}, origin
