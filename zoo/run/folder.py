"""The folder of a run: which one, whether it is continued, what may have changed since, and its one writer."""

import glob
import itertools
import os
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO

from zoo.config import loader
from zoo.data import durable
from zoo.data.errors import Option, UserError, similar_path
from zoo.logs import journal

RECIPE = "config.yaml"
FIXED_KEYS = ("data.name", "data.segments", "data.size", "seed")  # that a resume must keep, as all of section `model`
PLACES = ("out", "weights_dir")  # of which a change is not worth a line
LOCK = ".lock"  # holds the host and the process that locked it last


class FolderLock:
    """The lock on a run's folder, held from `acquire` to `release` or to the end of the process."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def acquire(self, folder: str) -> None:
        """Lock a folder that exists, unless this object holds its lock already.

        Nothing is locked on a file system that has no locks.
        """
        if self._file:
            return
        try:
            self._file = _locked(os.path.join(folder, LOCK))
        except BlockingIOError as error:
            raise UserError(
                f"{folder} is being written by {error.strerror}: wait for its end, or stop it, before going on "
                "there; or choose another folder with ",
                Option("--out", "DIR"),
            ) from None
        except OSError as error:
            raise UserError(f"out: cannot write to {folder}: {error.strerror}") from None

    def release(self) -> None:
        """Let other processes write to the folder. The file stays, because removing it would unlock a newer holder."""
        if self._file:
            self._file.close()
            self._file = None


@contextmanager
def exclusive(folder: str) -> Iterator[None]:
    """Make a folder of several runs, and keep other processes from working in it. Raises UserError."""
    holder = FolderLock()
    try:
        durable.make_folders(folder)
    except OSError as error:
        raise UserError(f"out: cannot write to {folder}: {error.strerror}") from None
    holder.acquire(folder)
    try:
        yield
    finally:
        holder.release()


def require_new(folder: str) -> None:
    if is_run(folder):
        raise UserError(
            f"out: {folder} holds a run already; continue it with ",
            Option("--resume", folder),
            ", or choose another folder with ",
            Option("--out", "DIR"),
        )


def existing(requested: str | None, recipe: str) -> str:
    """Return the folder of the run to resume: the requested one, or that of runs/<recipe>* with the newest event."""
    if requested:
        if not has_begun(requested):
            exists = os.path.isdir(requested)
            start = "to start one there: -c RECIPE ", Option("--out", requested), " ", Option("--resume")
            problem = f"{requested} holds no run" if exists else f"there is no folder {requested}"
            above = os.path.dirname(os.path.dirname(os.path.normpath(requested)))  # of a checkpoint
            hint = "" if exists else similar_path(requested)
            if above and has_begun(above):
                hint = f"; did you mean {above}?"
            raise UserError(Option("--resume"), f": {problem} (", *start, f"){hint}")
        return requested
    stem = os.path.join("runs", recipe)
    numbered = re.compile(re.escape(stem) + r"(-\d+)?")
    found = [path for path in glob.glob(f"{glob.escape(stem)}*") if numbered.fullmatch(path) and has_begun(path)]
    if not found:
        raise UserError(
            Option("--resume"), f": there is no run {stem} to continue; name its folder: ", Option("--resume", "DIR")
        )
    return max(found, key=lambda path: (_last_written(path), len(path), path))


def has_begun(folder: str) -> bool:
    """Return whether a folder holds a run: its recipe, its events or its checkpoints."""
    return any(os.path.exists(os.path.join(folder, name)) for name in (RECIPE, journal.FILE, "checkpoints"))


def _last_written(run: str) -> float:
    """Return the time of a run's last event, which copying the run does not change; of its folder without any.

    It is 0 for a run of --speed, which never goes on.
    """
    events = journal.history(run)
    if any(event.get("speed") for event in events):
        return 0.0
    return events[-1].get("time", 0.0) if events else os.path.getmtime(run)


def is_run(folder: str) -> bool:
    """Return whether a folder exists and holds more than a lock."""
    return os.path.isdir(folder) and any(name != LOCK for name in os.listdir(folder))


def check_same(recorded: loader.Entries, current: loader.Entries) -> list[str]:
    """Compare the recipe of a run with the one to resume it with.

    Returns:
        A line for every key whose value differs.
    """
    known = {key: entry for key, entry in current.items() if key in recorded or entry.origin != loader.DEFAULT}
    changed = loader.differences(recorded, known)  # without the defaults of keys that are younger than the run
    forbidden = [line for key, line in changed.items() if key.startswith("model.") or key in FIXED_KEYS]
    if forbidden:
        raise UserError(Option("--resume"), ": this is not the same run any more:\n  " + "\n  ".join(forbidden))
    return [line for key, line in changed.items() if key not in PLACES]


def open_folder(resume: str | None, requested: str | None, recipe: str, text: str, holder: FolderLock) -> str:
    """Create the folder of a new run with its resolved recipe, or take that of the run to resume; lock it.

    The recipe of a run that goes on is replaced when it trains (`write_recipe`): until then nothing has changed.

    Args:
        resume: folder of the run to continue, None for a new run.
        requested: folder of a new run, None for runs/<recipe>.
    """
    if requested and not resume:
        require_new(requested)
    folder = resume or requested or ""
    try:
        if folder:
            durable.make_folders(folder)
        else:
            folder = durable.new_folder(numbered(os.path.join("runs", recipe)))
        holder.acquire(folder)
        if not resume:
            require_new(folder)  # still: another process may have been faster
        if not resume or not os.path.exists(os.path.join(folder, RECIPE)):
            write_recipe(folder, text)
    except OSError as error:
        raise UserError(f"out: cannot write to {folder}: {error.strerror}") from None
    return folder


def write_recipe(folder: str, text: str) -> None:
    path = os.path.join(folder, RECIPE)
    durable.replace(path, text.encode(), f"{path}.writing")


def new_results(out: str | None, command: str, recipe: str) -> str:
    """Create the folder for what a command finds out of a recipe: --out, or runs/<command>-<recipe>, -2, -3 ..."""
    if out and os.path.lexists(out):
        raise UserError(f"--out: {out} exists already and is not overwritten; choose another folder")
    stem = os.path.join("runs", f"{command}-{os.path.splitext(os.path.basename(recipe))[0]}")
    try:
        return durable.new_folder([out] if out else numbered(stem))
    except OSError as error:
        raise UserError(f"--out {error.filename or out}: cannot be made: {error.strerror}") from None


def numbered(stem: str) -> Iterator[str]:
    """Yield stem, stem-2, stem-3 ..."""
    yield stem
    yield from (f"{stem}-{number}" for number in itertools.count(2))


def _locked(path: str) -> TextIO:
    """Return the open file, locked.

    Raises:
        BlockingIOError: another process holds the lock; `strerror` is what the file says of it.
        OSError: the file cannot be written or locked.
    """
    with ExitStack() as closed_on_error:
        file = closed_on_error.enter_context(open(path, "a+", encoding="utf-8", opener=durable.regular))
        try:
            durable.lock(file)
        except BlockingIOError as error:
            file.seek(0)
            raise BlockingIOError(error.errno, file.read(200).strip() or "another process") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        closed_on_error.pop_all()
        return file
