"""Going on with a run from its newest checkpoint: its tensors, settings and progress.

A resume reads the files of the checkpoint's folder, which zoo/run/checkpoint.py lists, and of the run's folder
`config.yaml`, without which the recipe in the checkpoint counts, and `events.jsonl`, to which it adds.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.data.formats import regular
from zoo.data.parsing import parsing
from zoo.distributed.group import Group
from zoo.logs import journal
from zoo.logs.journal import Journal
from zoo.run import checkpoint, weights
from zoo.run.folder import FolderLock
from zoo.run.weights import Print
from zoo.trainer import state
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import Trainer
from zoo.trainer.update import SCALE_KEY
from zoo.weights import files
from zoo.weights.match import require_match

KEPT = ("framework", "channels_last", "loader")  # which a run keeps where its recipe leaves them open


FilesOf = Callable[[str], Sequence[str]]  # name of a sample -> names of its items


@dataclass
class Progress:
    """Progress of a run; that of rank 0 counts.

    Attributes:
        evaluations: accuracy by step, in order; NaN where it was not finite.
        unreadable: items of the data that could not be read and have not been mended since.
        losses: of every rank the sum of the losses since the last multiple of train.log_every, and their number.
    """

    evaluations: dict[int, float] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    losses: list[tuple[float, int]] = field(default_factory=list)
    by_epoch: dict[int, set[str]] = field(default_factory=dict)

    def best(self) -> float | None:
        """Return the best finite accuracy so far, None without one."""
        return max(filter(math.isfinite, self.evaluations.values()), default=None)

    def without_improvement(self) -> int:
        """Return the number of evaluations after the one that reached the best accuracy first.

        An accuracy that is not finite improves nothing.
        """
        best, count = -math.inf, 0
        for accuracy in self.evaluations.values():
            best, count = (accuracy, 0) if accuracy > best else (best, count + 1)
        return count

    def early_end(self, limit: int | None) -> str | None:
        """Return why a run ends after its last evaluation, None if it goes on.

        Args:
            limit: evaluations in a row without a better accuracy that end a run; None: no number of them does.
        """
        count = self.without_improvement()
        if limit is None or count < limit:
            return None
        last = f"the last {count} evaluations" if count > 1 else "the last evaluation"
        best = self.best()
        before = "none was finite" if best is None else f"the best is {best:.4f}"
        return f"the metric has not improved in {last} ({before}; train.early_stopping={limit})"

    def mend(self, mended: Collection[str], files_of: FilesOf) -> None:
        """Forget items that can be read again."""
        self.unreadable.difference_update(mended)
        for epoch, names in self.by_epoch.items():
            self.by_epoch[epoch] = {name for name in names if not {*files_of(name)} & {*mended}}

    def content(self) -> bytes:
        """Return the progress as JSON."""
        evaluations, unreadable = list(self.evaluations.items()), sorted(self.unreadable)
        values = {"evaluations": evaluations, "unreadable": unreadable, "losses": self.losses}
        values |= {"by_epoch": [(epoch, sorted(names)) for epoch, names in self.by_epoch.items()]}
        return journal.json_text(values, indent=1).encode()


def claim(run: str, lock: FolderLock) -> list[str]:
    """Lock the run to resume, before the minutes that reading data may take; return what was mended."""
    lock.acquire(run)
    return [*journal.check(run), *checkpoint.set_damaged_aside(run)]


def begun(group: Group, run: str | None) -> dict[str, Any]:
    """Return the record of the checkpoint that a run goes on from; empty for a new run. A collective call."""
    record: dict[str, Any] = {}
    path = checkpoint.latest(run) if run and group.rank == 0 else None
    if path:
        found = checkpoint.load_record(path)
        record = {key: found.get(key) for key in KEPT}
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
    log: Journal, folder: str, first_step: int, path: str | None, progress: Progress, **changeable: Any
) -> None:
    """Add `resume`, and the events that a kill has prevented; link `last` and `best`.

    Args:
        log: of the run.
        folder: of the run.
        first_step: updates done so far.
        path: of the checkpoint to go on from, if any.
        progress: of the run.
        changeable: fields of `resume`.
    """
    log.add("resume", step=first_step, path=path, **changeable)
    last = log.last("save")
    if first_step and (last is None or last["step"] < first_step):
        log.add("save", step=first_step, path=path)  # a kill came after the checkpoint
    checkpoint.restore_links(folder, log, progress.evaluations, first_step)


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


def parse_progress(path: str) -> Progress:
    """Read a file with the `content` of a progress. Raises UserError if it cannot be read."""
    with parsing(f"{path} cannot be read", "restore it from a copy, or go on from another checkpoint"):
        values = regular.load_json(path)
        evaluations = {int(step): _number(value) for step, value in values["evaluations"]}
        losses = [(_number(total), int(count)) for total, count in values.get("losses", [])]  # older ones lack it
        by_epoch = {int(epoch): set(map(str, names)) for epoch, names in values.get("by_epoch", [])}  # and this
        return Progress(evaluations, set(map(str, values["unreadable"])), losses, by_epoch)


def _number(value: Any) -> float:
    """Return a number of a JSON file, where those that are not finite are null."""
    return math.nan if value is None else float(value)
