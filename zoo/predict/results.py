"""Results of predictions: a row per file, the lines on the screen, and predictions.json."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FILE_NAME = "predictions.json"
DEFAULT_TOP = 5  # classes, or images found by a search, to list for a file

Row = dict[str, Any]  # of one file in predictions.json


class Prediction(NamedTuple):
    """The result for one file: a line for the screen and a row for predictions.json."""

    line: str
    row: Row


class Failure(NamedTuple):
    """A file that has no result."""

    path: str
    reason: str

    @property
    def row(self) -> Row:
        return {"file": self.path, "error": self.reason}


def write_results(folder: str, metadata: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write predictions.json, one JSON object whose `files` take a line each; an existing file is not replaced."""
    head, body = json.dumps(dict(metadata), indent=1)[:-2], ",\n  ".join(map(json.dumps, rows))
    with open(os.path.join(folder, FILE_NAME), "x", encoding="utf-8") as file:
        file.write(f'{head},\n "files": [\n  {body}\n ]\n}}\n')


def output_stems(paths: Sequence[str]) -> list[str]:
    """Return a distinct file name for each path, without folder and extension: `name`, then `name-2` ..."""
    stems: dict[str, None] = {}
    for path in paths:
        stem = Path(os.path.abspath(path)).stem
        numbered = (f"{stem}-{number}" for number in range(2, len(paths) + 2))
        stems[stem if stem not in stems else next(name for name in numbered if name not in stems)] = None
    return list(stems)


def printable(path: str) -> str:
    """Return a path as text that can be printed: its bytes need not be valid UTF-8."""
    return os.fsencode(path).decode(errors="replace")
