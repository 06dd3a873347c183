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
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np
from safetensors.numpy import save

from data.errors import UserError
from zoo.weights import files

FOLDER = "checkpoints"
FILES = ("model.safetensors", "update.safetensors")
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)


def save_checkpoint(run: str, step: int, tensors: Mapping[str, np.ndarray], record: Mapping[str, Any], best: bool,
                    keep: int) -> str:
    """Write the checkpoint of a step, then drop all but the last `keep` and the best. The folder's path."""
    folder = os.path.join(run, FOLDER)
    path = os.path.join(folder, f"step-{step:08d}")
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


def _write(folder: str, step: int, tensors: Mapping[str, np.ndarray], record: Mapping[str, Any]) -> None:
    is_update = {name: "/" in name for name in tensors}
    # Class names travel with the weights. One key alone: safetensors writes several in random order, and the same
    # run must give the same bytes.
    metadata = {"classes": json.dumps(record["classes"])}
    sizes = {}
    for file, update in zip(FILES, (False, True)):
        names = [name for name in sorted(tensors) if is_update[name] == update]
        chosen = {name: np.asarray(tensors[name], order="C") for name in names}
        sizes[file] = write_synced(os.path.join(folder, file), save(chosen, metadata))
    text = json.dumps({**record, "step": step, "files": sizes}, indent=1)
    write_synced(os.path.join(folder, "checkpoint.json"), text.encode())


def latest(run: str) -> Optional[str]:
    """The newest checkpoint folder of a run, None if there is none."""
    paths = _all(os.path.join(run, FOLDER))
    return paths[-1] if paths else None


def load_checkpoint(path: str) -> Tuple[Dict[str, np.ndarray], Dict[str, Any]]:
    """All tensors and the record of a checkpoint folder. Raises UserError if a file is missing or was cut."""
    record, tensors = load_record(path), {}  # type: Dict[str, Any], Dict[str, np.ndarray]
    try:
        for name, size in record["files"].items():
            if os.path.getsize(os.path.join(path, name)) != size:
                raise UserError(f"{path}: {name} is not {size} bytes long any more; resume from another checkpoint")
            tensors.update(files.read(os.path.join(path, name))[0])
    except UNREADABLE as error:
        raise _not_readable(path, error) from None
    return tensors, record


def load_record(path: str) -> Dict[str, Any]:
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


def _all(folder: str) -> List[str]:
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
