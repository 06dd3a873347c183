"""The folder of a matrix: what identifies it (matrix.json), and a journal of attempts (benchmark.jsonl)."""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from zoo.bench.matrix.cases import Case
from zoo.data.errors import UserError
from zoo.data.formats import regular
from zoo.data.parsing import parsing

MATRIX, ATTEMPTS = "matrix.json", "benchmark.jsonl"


class Folder:
    """The folder of a matrix.

    Attributes:
        path: of the folder.
        attempts: what has been tried so far, in order.

    Args:
        path: of the folder; it is made if need be.
        description: what identifies the matrix.

    Raises:
        UserError: the folder holds another matrix or something else, or cannot be written to.
    """

    def __init__(self, path: Path, description: Mapping[str, Any]):
        self.path = path
        recorded = recorded_matrix(path)
        if recorded is None and path.is_dir() and any(path.iterdir()):
            raise UserError(f"--out {path}: this folder holds something else; choose a new one")
        if recorded is not None and (changed := differences(recorded, description)):
            lines = "\n  ".join(changed)
            raise UserError(
                f"--out {path}: this folder holds another matrix; choose a new one. What differs:\n  {lines}"
            )
        try:
            if recorded is None:
                write(path / MATRIX, json.dumps(description, indent=1) + "\n")
        except OSError as error:
            raise UserError(f"--out {path}: cannot be written to ({error.strerror})") from None
        self.attempts = _read_lines(path / ATTEMPTS)

    def add(self, kind: str, case: Case, **values: Any) -> None:
        """Append an attempt to the journal, and make it durable."""
        entry = {"kind": kind, "case": str(case), **values}
        self.attempts.append(entry)
        with open(self.path / ATTEMPTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, kind: str, case: Case) -> list[dict[str, Any]]:
        """Return the attempts of a kind for a case."""
        return [entry for entry in self.attempts if entry["kind"] == kind and entry["case"] == str(case)]

    def failure(self, case: Case) -> str | None:
        """Return why a case has failed; None if it has not, or has run since."""
        entries = [e for e in self.attempts if e["case"] == str(case) and e["kind"] in ("failure", "run")]
        return entries[-1].get("reason") if entries else None

    def forget(self, kind: str) -> None:
        """Drop the attempts of a kind, in memory alone: what follows in the journal replaces them."""
        self.attempts = [entry for entry in self.attempts if entry["kind"] != kind]


def recorded_matrix(path: Path) -> dict[str, Any] | None:
    """Return what identifies the matrix in a folder; None if there is none.

    Raises:
        UserError: the file is damaged.
    """
    if not (path / MATRIX).exists():
        return None
    with parsing(f"{path / MATRIX}: cannot be read", "choose another folder"):
        return dict(regular.load_json(str(path / MATRIX)))


def differences(recorded: Mapping[str, Any], current: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return `key: old -> new` for every value that differs."""
    found = []
    for key in dict.fromkeys([*recorded, *current]):
        old, new = recorded.get(key, "absent"), current.get(key, "absent")
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{key}: ")
        elif old != new:
            found.append(f"{prefix}{key}: {old} -> {new}")
    return found


def clear(run: Path) -> None:
    """Remove what an interrupted run has left."""
    shutil.rmtree(run, ignore_errors=True)
    shutil.rmtree(f"{run}.ranks", ignore_errors=True)
    run.parent.mkdir(parents=True, exist_ok=True)


def write(path: str | Path, text: str) -> None:
    """Write a file that is either old or complete, and the folders above it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".writing")
    try:
        temporary.write_text(text, encoding="utf-8", errors="replace")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a journal, without a line that a kill has truncated, which it ends."""
    entries = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    if text and not text.endswith("\n"):
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n")
    for line in text.splitlines():
        with suppress(ValueError):
            entries.append(json.loads(line))
    return entries
