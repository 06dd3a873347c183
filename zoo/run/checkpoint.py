"""Atomic checkpoints: a folder of safetensors and JSON, written under a temporary name, synced and renamed.

It holds all that a resume goes on from.

<run>/checkpoints/step-00000500/model.safetensors   weights and running statistics, by canonical name
                                ema.safetensors     their moving averages, by the same names, if there are
                                update.safetensors  optimizer state and loss scale
                                checkpoint.json     step, class names, recipe, size and SHA-256 of each file
                                progress.json       evaluations so far, and data that could not be read
                                data_record.safetensors   names and digests of the samples, by which changes show
                                evaluation.json     the metrics, if this step was evaluated
<run>/checkpoints/last, best                        links to such folders (zoo/weights/recorded.py)
"""

import contextlib
import itertools
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from zoo.data import durable
from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular
from zoo.distributed.group import Group
from zoo.logs import journal
from zoo.trainer.protocol import Param, Trainer
from zoo.trainer.state import EMA_PREFIX, not_finite, shortened
from zoo.weights import files, recorded
from zoo.weights.files import RECORD, DamagedFile
from zoo.weights.recorded import AVERAGE, EVALUATION, FOLDER, MODEL

UPDATE = "update.safetensors"  # beside MODEL and AVERAGE
PROGRESS, DATA = "progress.json", "data_record.safetensors"
MAX_STEP = 1 << 53
MESSAGE_BYTES = 1 << 23  # rank 0 holds three messages at once while it writes
Tensors = Mapping[str, np.ndarray | files.StreamedTensor]


class NotFinite(Exception):
    """A state that nothing can go on from; the argument names the tensors."""


def path_of(run: str, step: int) -> str:
    return os.path.join(run, FOLDER, f"step-{step:08d}")


def save_checkpoint(
    run: str,
    step: int,
    tensors: Tensors,
    record: Mapping[str, Any],
    keep: int,
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> str:
    """Write the checkpoint of a step, link `last` to it and remove old ones.

    Args:
        tensors: by canonical name; names with a slash are moving averages, the state of the optimizer and the loss
            scale.
        record: facts for checkpoint.json; `classes` holds the class names.
        keep: newest checkpoints to keep, beside the best.
        beside: contents of further files, by name.

    Returns:
        The folder of the checkpoint.
    """
    folder, path = os.path.join(run, FOLDER), path_of(run, step)
    if not os.path.isdir(path):  # a step's tensors never differ, so an existing checkpoint is the same
        temporary = os.path.join(folder, f".writing-{step:08d}")
        shutil.rmtree(temporary, ignore_errors=True)
        durable.make_folders(folder)
        os.mkdir(temporary)
        try:
            _write(temporary, step, tensors, record)
            for name, content in beside.items():
                durable.write(os.path.join(temporary, name), content)
            durable.sync_folder(temporary)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)  # on a full disk, the log needs the room
            raise
        os.rename(temporary, path)
        durable.sync_folder(folder)  # before an old checkpoint is removed
    link(run, "last", step)
    remove_old(run, keep)
    return path


def save_shared(
    group: Group,
    trainer: Trainer,
    run: str | None,
    step: int,
    record: Mapping[str, Any],
    keep: int,
    beside: Mapping[str, bytes],
) -> str | None:
    """Average running statistics over ranks, then save the checkpoint of a step; called by all ranks.

    Args:
        run: the run's folder on rank 0, None on the other ranks.

    Returns:
        The folder of the checkpoint on rank 0, None on the other ranks.

    Raises:
        NotFinite: on all ranks; nothing has been written.
    """
    trainer.sync_batch_stats()
    sharded = {param.name: param for param in trainer.params if param.rows}
    state = trainer.state_dict() if not group.rank or sharded or trainer.gathers_state else {}
    names = [name for of_rank in group.all_gather(not_finite(state)) for name in of_rank]
    if names:
        raise NotFinite(shortened(list(dict.fromkeys(names))))
    if group.rank and not sharded:
        return None
    tensors: Mapping[str, np.ndarray | files.StreamedTensor] = state
    if sharded and group.size > 1:
        exists = group.all_gather(run is not None and os.path.isdir(path_of(run, step)))[0]
        if group.rank:
            if not exists:
                _send_rows(state, sharded, group)
            return None
        tensors = {name: _gathered(array, sharded.get(name.rpartition("/")[2]), group) for name, array in state.items()}
    assert run is not None
    return save_checkpoint(run, step, tensors, record, keep, beside)


def save_evaluation(run: str, step: int, metrics: Mapping[str, Any], best: bool, keep: int) -> None:
    """Write an evaluation's metrics beside the checkpoint of its step; link `best` to it if it is the best so far.

    The checkpoint that was the best before is removed if it is not among the newest `keep`.
    """
    folder, path = os.path.join(run, FOLDER), path_of(run, step)
    replace(path, EVALUATION, journal.json_text({"step": step, **metrics}, indent=1).encode())
    if best:
        link(run, "best", step)
        durable.sync_folder(folder)  # before the checkpoint that was the best is removed
        remove_old(run, keep)


class Best(NamedTuple):
    """Step of the best checkpoint, and by what it is the best (zoo/weights/recorded.py)."""

    step: int
    rank: tuple[float, float]


def find_best(folder: str, evaluations: Mapping[int, float], before: float = math.inf) -> Best | None:
    """Return the best checkpoint that exists; None without a finite evaluation.

    Args:
        evaluations: accuracy by step. The losses, which decide among equals, are beside the checkpoints.
        before: only earlier steps count.
    """
    found = [
        Best(step, recorded.rank({**recorded.evaluation(path), "accuracy": evaluations[step]}))
        for step, path in steps(folder)
        if step < before and step in evaluations and math.isfinite(evaluations[step])
    ]
    return max(found, key=lambda best: (best.rank, -best.step), default=None)


def replace(path: str, name: str, content: bytes) -> None:
    """Write a file beside the tensors of a checkpoint, completely or not at all."""
    durable.replace(os.path.join(path, name), content, os.path.join(path, f".{name}"))


def remove_old(run: str, keep: int) -> None:
    """Remove all checkpoints but the newest `keep` and the best, and what a kill has left of others."""
    folder = os.path.join(run, FOLDER)
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.startswith(".dropping-"):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    best = os.path.realpath(recorded.resolve_pointer(os.path.join(folder, "best")))
    for path in _all(run)[:-keep]:
        if os.path.realpath(path) != best:
            _drop(path)


def steps(run: str) -> list[tuple[int, str]]:
    """Return the steps of a run's checkpoints, and their folders."""
    folder = os.path.join(run, FOLDER)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted((int(name[5:]), os.path.join(folder, name)) for name in names if re.fullmatch(r"step-\d{8,}", name))


def names_by_file(tensors: Mapping[str, Any]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {MODEL: [], UPDATE: []}
    for name in files.storage_order(tensors):
        file = AVERAGE if name.startswith(EMA_PREFIX) else UPDATE if "/" in name else MODEL
        names.setdefault(file, []).append(name)
    return names


def latest(run: str) -> str | None:
    """Return the newest checkpoint folder of a run, None if there is none."""
    paths = _all(run)
    return paths[-1] if paths else None


def load_checkpoint(
    path: str, rows: Mapping[str, files.RowRange] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read a checkpoint folder.

    Args:
        rows: for some tensors, the rows to read, as files.read takes them; all other tensors are read whole.

    Returns:
        The tensors by name, and the record of checkpoint.json.
    """
    record = load_record(path)
    tensors: dict[str, np.ndarray] = {}
    with _reading(path):
        for name, size in record["files"].items():
            _check_size(path, name, size)
            prefix = EMA_PREFIX if name == AVERAGE else ""
            read = files.read(os.path.join(path, name), rows)[0]
            tensors.update((prefix + tensor, array) for tensor, array in read.items())
    return tensors, record


def set_damaged_aside(run: str) -> list[str]:
    """Rename the newest checkpoints of a run that are damaged, so that it goes on from the newest whole one.

    Returns:
        A line for each of them.
    """
    damaged: list[tuple[str, DamagedFile]] = []
    for path in reversed(_all(run)):
        try:
            check_whole(path)
            break
        except DamagedFile as error:
            damaged.append((path, error))
    else:
        if damaged:
            raise damaged[0][1]
    return [f"{error}; it is now {_set_aside(path)}" for path, error in damaged]


def check_whole(path: str) -> None:
    """Compare the size and SHA-256 of every file of a checkpoint with what its record says. Raises DamagedFile."""
    record = load_record(path)
    with _reading(path):
        for name, size in record["files"].items():
            _check_size(path, name, size)
            files.check_digest(os.path.join(path, name), files.sha256(os.path.join(path, name)))


def load_record(path: str) -> dict[str, Any]:
    """Read the checkpoint.json of a checkpoint folder."""
    with _reading(path):
        record = regular.load_json(os.path.join(recorded.resolve_pointer(path), RECORD))
        step, sizes = int(record["step"]), dict(record["files"])
        if not 0 <= step <= MAX_STEP or not set(sizes) <= {MODEL, AVERAGE, UPDATE}:
            raise ValueError(f"step {step} with the files {', '.join(sizes)}")
        return {**record, "step": step, "files": sizes}


def _write(folder: str, step: int, tensors: Tensors, record: Mapping[str, Any]) -> None:
    metadata = {"classes": json.dumps(record["classes"])}  # the class names travel with the weights
    written = {
        file: files.write_streamed(
            os.path.join(folder, file), {name.removeprefix(EMA_PREFIX): tensors[name] for name in names}, metadata
        )
        for file, names in names_by_file(tensors).items()
    }
    sizes = {file: size for file, (size, _) in written.items()}
    hashes = {file: digest for file, (_, digest) in written.items()}
    text = json.dumps({**record, "step": step, "files": sizes, files.DIGEST_KEY: hashes}, indent=1)
    durable.write(os.path.join(folder, RECORD), text.encode())


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn exceptions into a DamagedFile, or into a UserError where the file may be whole."""
    problem = f"{path}: not a readable checkpoint"
    with parsing(problem, "use another checkpoint, or copy this one again", kind=DamagedFile):
        try:
            yield
        except PermissionError as error:
            raise UserError(f"{problem} ({error})") from None


def _check_size(path: str, name: str, size: int) -> None:
    if os.path.getsize(os.path.join(path, name)) != size:
        raise DamagedFile(f"{path}: {name} is not {size} bytes long any more; use another checkpoint")


def _set_aside(path: str) -> str:
    """Rename a checkpoint to a name that is never loaded, and return it."""
    folder, name = os.path.split(path)
    aside = next(
        other
        for number in itertools.count()
        if not os.path.exists(other := f"{folder}/damaged-{name}{f'-{number}' if number else ''}")
    )
    os.rename(path, aside)
    return aside


def _all(run: str) -> list[str]:
    return [path for _, path in steps(run)]


def link(run: str, name: str, step: int) -> None:
    """Point `last` or `best` at the checkpoint of a step by one rename, so that the link is never missing."""
    folder, target = os.path.split(path_of(run, step))
    temporary = os.path.join(folder, f".{name}")
    if os.path.lexists(temporary):
        os.remove(temporary)
    try:
        os.symlink(target, temporary)
    except OSError:  # a file system without links
        durable.write(temporary, target.encode())
    path = os.path.join(folder, name)
    if os.path.isdir(path) and not os.path.islink(path):  # a copy of a checkpoint, made by copying the run
        _drop(path)
    os.replace(temporary, path)


def _drop(path: str) -> None:
    """Remove a folder, renamed first: what a kill or power cut in between leaves has a name that is never loaded."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".dropping-{name}")
    shutil.rmtree(temporary, ignore_errors=True)
    os.rename(path, temporary)
    durable.sync_folder(folder)
    shutil.rmtree(temporary, ignore_errors=True)


def _gathered(local_rows: np.ndarray, param: Param | None, group: Group) -> np.ndarray | files.StreamedTensor:
    """On rank 0: the tensor, whose rows of other ranks are received while it is written."""
    if param is None:
        return local_rows
    from zoo.trainer import sharding  # which most models do without

    shape = param.shape

    def blocks() -> Iterator[np.ndarray]:
        yield local_rows
        for rank in range(1, group.size):
            first, last = sharding.row_range(shape[0], rank, group.size)
            for _ in range(0, last - first, _rows_per_message(local_rows)):
                yield np.frombuffer(group.receive_from(rank), local_rows.dtype)

    return files.StreamedTensor(shape, local_rows.dtype, blocks())


def _send_rows(tensors: Mapping[str, np.ndarray], sharded: Mapping[str, Param], group: Group) -> None:
    """On the other ranks: send the local rows in the order in which the files hold the tensors."""
    for names in names_by_file(tensors).values():
        for name in names:
            if name.rpartition("/")[2] in sharded:
                rows = _rows_per_message(tensors[name])
                for start in range(0, len(tensors[name]), rows):
                    group.send_to_root(tensors[name][start : start + rows].tobytes())


def _rows_per_message(tensor: np.ndarray) -> int:
    return max(1, MESSAGE_BYTES // tensor[0].nbytes)
