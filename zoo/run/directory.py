"""The folder of a run: which one, whether it is continued, and what may have changed since."""

import os
import stat
from collections.abc import Iterator

from zoo.config import loader
from zoo.data import audit, durable
from zoo.data.errors import UserError
from zoo.logs import airank, journal
from zoo.logs.listeners import metrics_csv
from zoo.run import data_record, lock

RECIPE = "config.yaml"
FIXED_KEYS = ("model.", "data.name", "data.segments", "data.size", "seed")  # prefixes of keys that a resume must keep


def new(requested: str | None, recipe: str) -> str:
    """Return an unused folder: the requested one, or runs/<recipe>, runs/<recipe>-2 ...

    Raises:
        UserError: the requested folder holds a run.
    """
    if requested:
        if is_run(requested):
            raise UserError(
                f"out: {requested} holds a run already; continue it with --resume {requested}, "
                "or choose another folder with --out DIR"
            )
        return requested
    return next(path for path in _numbered(recipe) if not os.path.exists(path))


def existing(requested: str | None, recipe: str) -> str:
    """Return the folder of the run to resume: the requested one, or the newest of runs/<recipe>*.

    Raises:
        UserError: there is none.
    """
    if requested:
        if not os.path.isdir(requested):
            raise UserError(f"--resume: there is no folder {requested}")
        return requested
    newest = None
    for path in _numbered(recipe):
        if not os.path.exists(path):
            break
        newest = path
    if newest is None:
        raise UserError(f"--resume: there is no run runs/{recipe} to continue; name its folder: --resume DIR")
    return newest


def is_run(folder: str) -> bool:
    """Return whether a folder exists and holds more than a lock."""
    return os.path.isdir(folder) and any(name != lock.FILE for name in os.listdir(folder))


def check_same(recorded: loader.Entries, current: loader.Entries) -> list[str]:
    """Compare the recipe of a run with the one to resume it with.

    Returns:
        A line for every key whose value differs.

    Raises:
        UserError: a key differs that must not.
    """
    changed = loader.differences(recorded, current)
    forbidden = [line for line in changed if line.startswith(FIXED_KEYS)]
    if forbidden:
        raise UserError("--resume: this is not the same run any more:\n  " + "\n  ".join(forbidden))
    return [line for line in changed if not line.startswith("out:")]


def open_folder(resume: str | None, requested: str | None, recipe: str, text: str, holder: lock.FolderLock) -> str:
    """Create the folder of a new run, or take that of the run to resume, lock it and write the resolved recipe to it.

    Args:
        resume: folder of the run to continue, None for a new run.
        requested: folder of a new run, None for runs/<recipe>.
        recipe: name of the recipe.
        text: the resolved recipe as YAML.
        holder: locks the folder.

    Raises:
        UserError: the folder cannot be written to, or another process writes to it.
    """
    folder = resume or new(requested, recipe)
    try:
        durable.make_folders(folder)
        holder.acquire(folder)
        path = os.path.join(folder, RECIPE)
        durable.replace(path, text.encode(), f"{path}.writing")
    except OSError as error:
        raise UserError(f"out: cannot write to {folder}: {error.strerror}") from None
    return folder


def check_files(folder: str) -> None:
    """Check that what a run reads and writes in its folder, if it is there, are files and lead to no other place.

    Raises:
        UserError: a link, folder, pipe, socket or device has the name of one.
    """
    logs = journal.FILE, airank.FILE, metrics_csv.FILE
    for name in (RECIPE, lock.FILE, data_record.FILE, audit.TABLE_NAME, *logs):
        path = os.path.join(folder, name)
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise UserError(f"--resume: {path} is a link, a folder, a pipe or a device, and not a file; remove it")


def _numbered(recipe: str) -> Iterator[str]:
    yield os.path.join("runs", recipe)
    number = 2
    while True:
        yield os.path.join("runs", f"{recipe}-{number}")
        number += 1
