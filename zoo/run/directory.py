"""The folder of a run: which one, whether it is continued, and what may have changed since."""

import os

from data.errors import UserError
from zoo.config import loader
from zoo.run.checkpoint import write_synced

RECIPE = "config.yaml"
FIXED = ("model.", "data.name", "data.segments", "data.size", "seed")  # a run with another one is another run


def new(wanted: str | None, recipe: str) -> str:
    """An unused folder: the wanted one, or runs/<recipe>, runs/<recipe>-2 ... Raises UserError if it holds a run."""
    if wanted:
        if is_run(wanted):
            raise UserError(
                f"out: {wanted} holds a run already; continue it with --resume {wanted}, "
                "or choose another folder with --out DIR"
            )
        return wanted
    return next(path for path in _numbered(recipe) if not os.path.exists(path))


def existing(wanted: str | None, recipe: str) -> str:
    """The run to resume: the wanted one, or the newest of runs/<recipe>*. Raises UserError if there is none."""
    if wanted:
        if not os.path.isdir(wanted):
            raise UserError(f"--resume: there is no folder {wanted}")
        return wanted
    found: list[str] = []
    for path in _numbered(recipe):
        if not os.path.exists(path):
            break
        found.append(path)
    if not found:
        raise UserError(f"--resume: there is no run runs/{recipe} to continue; name its folder: --resume DIR")
    return found[-1]


def is_run(folder: str) -> bool:
    return os.path.isdir(folder) and bool(os.listdir(folder))


def check_same(old: loader.Entries, new_entries: loader.Entries) -> list[str]:
    """What differs between a run's recipe and the one to resume it with. Raises UserError for what must not."""
    changed = loader.differences(old, new_entries)
    broken = [line for line in changed if line.startswith(FIXED)]
    if broken:
        raise UserError("--resume: this is not the same run any more:\n  " + "\n  ".join(broken))
    return [line for line in changed if not line.startswith("out:")]


def open_folder(resume: str | None, wanted: str | None, recipe: str, text: str) -> str:
    """Make the folder of a run, or take that of the one to resume, and keep the resolved recipe in it."""
    folder = resume or new(wanted, recipe)
    try:
        os.makedirs(folder, exist_ok=True)
        aside = os.path.join(folder, RECIPE + ".writing")
        write_synced(aside, text.encode())
        os.replace(aside, os.path.join(folder, RECIPE))
    except OSError as error:
        raise UserError(f"out: cannot write to {folder}: {error.strerror}") from None
    return folder


def _numbered(recipe: str):
    yield os.path.join("runs", recipe)
    number = 2
    while True:
        yield os.path.join("runs", f"{recipe}-{number}")
        number += 1
