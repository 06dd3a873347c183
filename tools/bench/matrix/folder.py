"""The folder of a matrix: what identifies it (matrix.json), and a journal of attempts (benchmark.jsonl)."""

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.bench.matrix.cases import Case
from zoo.data.errors import UserError
from zoo.data.formats import budgeted_json
from zoo.data.parsing import parsing

MATRIX, ATTEMPTS, LOCK = "matrix.json", "benchmark.jsonl", ".lock"


class Folder:
    """The folder of a matrix, locked as long as the program runs.

    Attributes:
        path: of the folder.
        attempts: what has been tried so far, in order.

    Args:
        path: of the folder; it is made if need be.
        description: what identifies the matrix.

    Raises:
        UserError: the folder holds another matrix or something else, or another program uses it.
    """

    def __init__(self, path: Path, description: Mapping[str, Any]):
        self.path = path
        recorded = recorded_matrix(path)
        if recorded is None and path.is_dir() and any(entry.name != LOCK for entry in path.iterdir()):
            raise UserError(f"--out {path}: this folder holds something else; choose a new one")
        changed = [] if recorded is None else differences(recorded, description)
        if changed:
            lines = "\n  ".join(changed)
            raise UserError(
                f"--out {path}: this folder holds another matrix; choose a new one. What differs:\n  {lines}"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = open(path / LOCK, "w", encoding="utf-8")  # noqa: SIM115 (held until the process ends)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if recorded is None:
                write(path / MATRIX, json.dumps(description, indent=1) + "\n")
        except BlockingIOError:
            raise UserError(f"--out {path}: another benchmark is running in this folder") from None
        except OSError as error:
            raise UserError(f"--out {path}: cannot be written to ({error.strerror})") from None
        self.attempts = _read_lines(path / ATTEMPTS)

    def add(self, kind: str, case: Case, **values: Any) -> None:
        """Append an attempt to the journal, and make it durable."""
        entry = {"kind": kind, "case": str(case), **values}
        self.attempts.append(entry)
        with open(self.path / ATTEMPTS, "a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a kill truncated the last line
                    file.write(b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, kind: str, case: Case) -> list[dict[str, Any]]:
        """Return the attempts of a kind for a case."""
        return [entry for entry in self.attempts if entry["kind"] == kind and entry["case"] == str(case)]

    def failure(self, case: Case) -> str | None:
        """Return why a case has failed; None if it has not, or has run since."""
        entries = [e for e in self.attempts if e["case"] == str(case) and e["kind"] in ("failure", "run")]
        return entries[-1].get("reason") if entries else None

    def close(self) -> None:
        """Let other programs use the folder."""
        self._lock.close()

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
        found = budgeted_json.load(str(path / MATRIX))
    if not isinstance(found, dict):
        raise UserError(f"{path / MATRIX}: is no description of a matrix; choose another folder")
    return found


def differences(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return `key: old -> new` for every value that differs."""
    before, after = _flat(recorded), _flat(current)
    return [
        f"{key}: {before.get(key, 'absent')} -> {after.get(key, 'absent')}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key, "absent") != after.get(key, "absent")
    ]


def clear(run: Path) -> None:
    """Remove what an interrupted run has left."""
    shutil.rmtree(run, ignore_errors=True)
    shutil.rmtree(f"{run}.ranks", ignore_errors=True)
    run.parent.mkdir(parents=True, exist_ok=True)


def write(path: Path, text: str) -> None:
    """Write a file that is either old or complete."""
    temporary = path.with_name(path.name + ".writing")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    entries = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # truncated by a kill
                entries.append(entry)
    except FileNotFoundError:
        pass
    return entries


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat.update(_flat(value, f"{prefix}{key}: "))
        else:
            flat[prefix + key] = value
    return flat
