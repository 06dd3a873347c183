"""Checkpoints that are whole or not there: a folder of safetensors and JSON, written aside, synced and renamed.

<run>/checkpoints/step-00000500/model.safetensors   weights and running statistics, by canonical name
                                update.safetensors  momentum and loss scale
                                checkpoint.json     step, class names, metrics, recipe, and the size of each file
<run>/checkpoints/last, best                        links to such folders
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from data.errors import UserError
from zoo.weights import files

FOLDER = "checkpoints"
FILES = ("model.safetensors", "update.safetensors")
Tensors = Mapping[str, np.ndarray | files.Blocks]
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)


def path_of(run: str, step: int) -> str:
    return os.path.join(run, FOLDER, f"step-{step:08d}")


def save_checkpoint(run: str, step: int, tensors: Tensors, record: Mapping[str, Any], best: bool, keep: int) -> str:
    """Write the checkpoint of a step, then drop all but the last `keep` and the best. The folder's path."""
    folder, path = os.path.join(run, FOLDER), path_of(run, step)
    if not os.path.isdir(path):  # a step's tensors never differ, so an existing one is the same
        aside = os.path.join(folder, f".writing-{step:08d}")
        shutil.rmtree(aside, ignore_errors=True)
        os.makedirs(aside)
        try:
            _write(aside, step, tensors, record)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)  # on a full disk, the log needs the room
            raise
        os.rename(aside, path)
        _sync_folder(folder)
    _link(folder, "last", path)
    if best:
        _link(folder, "best", path)
    _drop_old(folder, keep)
    return path


def in_files(tensors: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The names in each of FILES, in order."""
    ordered = files.in_file(tensors)
    return [name for name in ordered if "/" not in name], [name for name in ordered if "/" in name]


def _write(folder: str, step: int, tensors: Tensors, record: Mapping[str, Any]) -> None:
    metadata = {"classes": json.dumps(record["classes"])}  # they travel with the weights
    sizes = {
        file: files.stream(os.path.join(folder, file), {name: tensors[name] for name in names}, metadata)
        for file, names in zip(FILES, in_files(tensors))
    }
    text = json.dumps({**record, "step": step, "files": sizes}, indent=1)
    write_synced(os.path.join(folder, "checkpoint.json"), text.encode())


def latest(run: str) -> str | None:
    """The newest checkpoint folder of a run, None if there is none."""
    paths = _all(os.path.join(run, FOLDER))
    return paths[-1] if paths else None


def load_checkpoint(
    path: str, rows: Mapping[str, files.Rows] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """All tensors (rows: of some only those, as files.read says) and the record of a checkpoint folder.

    Raises UserError if a file is missing or was cut.
    """
    record, tensors = load_record(path), {}  # type: Dict[str, Any], Dict[str, np.ndarray]
    try:
        for name, size in record["files"].items():
            if os.path.getsize(os.path.join(path, name)) != size:
                raise UserError(f"{path}: {name} is not {size} bytes long any more; resume from another checkpoint")
            tensors.update(files.read(os.path.join(path, name), rows)[0])
    except UNREADABLE as error:
        raise _not_readable(path, error) from None
    return tensors, record


def load_record(path: str) -> dict[str, Any]:
    """What a checkpoint folder says about itself. Raises UserError."""
    try:
        with open(os.path.join(path, "checkpoint.json"), encoding="utf-8") as file:
            record = json.load(file)
        return {**record, "step": int(record["step"]), "files": dict(record["files"])}
    except UNREADABLE as error:
        raise _not_readable(path, error) from None


def _not_readable(path: str, error: Exception) -> UserError:
    return UserError(f"{path}: not a readable checkpoint ({type(error).__name__}: {error})")


def write_synced(path: str, content: bytes) -> int:
    """Write a file and wait until it is on the disk. Its size in bytes."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return len(content)


def _all(folder: str) -> list[str]:
    names = os.listdir(folder) if os.path.isdir(folder) else []
    steps = sorted((int(name[5:]), name) for name in names if re.fullmatch(r"step-\d{8,}", name))
    return [os.path.join(folder, name) for _, name in steps]


def _link(folder: str, name: str, target: str) -> None:
    """Point folder/name at a checkpoint in one rename: the link is never missing."""
    aside = os.path.join(folder, f".{name}")
    if os.path.lexists(aside):
        os.remove(aside)
    os.symlink(os.path.basename(target), aside)
    os.replace(aside, os.path.join(folder, name))


def _drop_old(folder: str, keep: int) -> None:
    for name in os.listdir(folder):
        if name.startswith(".dropping-"):  # a kill came in between
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    best = os.path.realpath(os.path.join(folder, "best"))
    for path in _all(folder)[:-keep]:
        if os.path.realpath(path) != best:
            # Renamed first: a kill in between leaves rubbish under a name that nobody loads.
            aside = os.path.join(folder, f".dropping-{os.path.basename(path)}")
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
            shutil.rmtree(aside, ignore_errors=True)


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
