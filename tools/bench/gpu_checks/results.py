"""The output folder: one JSON file per step, and what all of its results have in common."""

import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.bench.gpu_checks.step import Step
from zoo.bench.matrix.folder import write
from zoo.data.errors import UserError

CHECK, RESULTS, RUNS, LOGS, LOCK = "check.json", "results", "runs", "logs", ".lock"
DONE, FAILED, SKIPPED = "done", "failed", "skipped"
Result = dict[str, Any]


class Results:
    """The results of a check, locked as long as the program runs.

    Args:
        path: of the folder; it is made if need be.
        settings: what its steps have in common; a folder with others is refused.

    Raises:
        UserError: the folder holds another check or something else, another program uses it, or it cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]):
        self.path = path
        try:
            if path.exists() and not is_check(path) and any(entry.name != LOCK for entry in path.iterdir()):
                raise UserError(f"--out {path}: this folder holds something else; choose a new one")
            for name in (RESULTS, RUNS, LOGS):
                (path / name).mkdir(parents=True, exist_ok=True)
            self._lock = open(path / LOCK, "w", encoding="utf-8")  # noqa: SIM115 (held until the process ends)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not (path / CHECK).exists():
                write(path / CHECK, json.dumps(settings) + "\n")
        except BlockingIOError:
            raise UserError(f"--out {path}: another check is running in this folder") from None
        except OSError as error:
            raise UserError(f"--out {path}: cannot be written to ({error.strerror})") from None
        recorded = read_settings(path)
        if recorded != settings:
            raise UserError(f"--out {path}: holds a check with {recorded}, not {dict(settings)}; choose a new folder")

    def get(self, step: Step) -> Result | None:
        """Return the result of a step, None if it has none."""
        return _read(self.path / RESULTS / f"{step.name}.json")

    def put(self, step: Step, result: Result) -> None:
        """Record the result of a step."""
        write(self.path / RESULTS / f"{step.name}.json", json.dumps(result, indent=1) + "\n")

    def forget(self, step: Step) -> None:
        """Remove the result of a step."""
        (self.path / RESULTS / f"{step.name}.json").unlink(missing_ok=True)


def is_check(path: Path) -> bool:
    """Return whether a folder is that of a check."""
    return (path / CHECK).is_file()


def read_settings(path: Path) -> dict[str, Any]:
    """Return what the steps of a check have in common.

    Raises:
        UserError: the folder is none of a check.
    """
    settings = _read(path / CHECK)
    if settings is None:
        raise UserError(f"{path / CHECK}: cannot be read; name the folder of a check with --out")
    return settings


def read_all(path: Path, steps: Sequence[Step]) -> dict[str, Result]:
    """Return the results that a folder has, by the names of the steps."""
    found = {step.name: _read(path / RESULTS / f"{step.name}.json") for step in steps}
    return {name: result for name, result in found.items() if result is not None}


def _read(path: Path) -> dict[str, Any] | None:
    """Return a JSON object; None if there is none, or not a whole one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
