"""The folder of predictions: a line of JSON per file, written as it goes, so that a killed call can go on."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.data import durable
from zoo.data.errors import UserError
from zoo.data.formats import csv_files
from zoo.data.parsing import parsing
from zoo.predict.results import Row

ORIGIN, ROWS, TABLE = "origin.json", "predictions.jsonl", "predictions.csv"


def require_ours(folder: str, may_go_on: bool) -> None:
    """Raise UserError unless a folder is new, empty or, if a call may go on there, one of predictions."""
    is_free = not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder))
    if not is_free and not (may_go_on and os.path.isfile(os.path.join(folder, ORIGIN))):
        raise UserError(f"--out: {folder} exists already and is not overwritten; choose another folder")


def begin(folder: str, model: Mapping[str, Any], files: Sequence[str]) -> list[Row]:
    """Make the folder of predictions, or take up those of a call that did not end.

    Args:
        folder: new, empty, or of an earlier call.
        model: what computes and decides the predictions, of JSON's types.
        files: names of all inputs, in order.

    Returns:
        The rows that are written already, those of the first files.

    Raises:
        UserError: the folder holds predictions of another model, or of other files.
    """
    path = os.path.join(folder, ORIGIN)
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        with open(f"{path}.part", "w", encoding="utf-8", opener=durable.fresh) as file:
            file.write(json.dumps(model, indent=1) + "\n")
        os.replace(f"{path}.part", path)
        return []
    _require_same(folder, path, json.loads(json.dumps(model)))
    rows = _whole_rows(os.path.join(folder, ROWS))
    if [row["file"] for row in rows] != list(files[: len(rows)]):
        raise UserError(f"--out: {folder} holds predictions of other files; choose another folder")
    return rows


def _require_same(folder: str, path: str, model: Mapping[str, Any]) -> None:
    with parsing(f"--out: {path} is damaged", "choose another folder"), open(path, encoding="utf-8") as file:
        before = dict(json.load(file))
    for key in [*model, *before]:
        old, new = before.get(key), model.get(key)
        if old != new:
            raise UserError(f"--out: {folder} holds predictions with {key}={old}, not {new}; choose another folder")


def _whole_rows(path: str) -> list[Row]:
    """Return the rows up to the first line that is not whole, and cut the file there."""
    rows: list[Row] = []
    end = 0
    with open(path, "ab+", opener=durable.regular) as file:
        file.seek(0)
        for line in file:
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                row = None
            if not isinstance(row, dict) or "file" not in row:
                break
            rows.append(row)
            end += len(line)
        file.truncate(end)
    return rows


def write_table(folder: str, rows: Sequence[Row]) -> None:
    """Write the most probable class of each file, of a scene the largest, as CSV."""
    path = os.path.join(folder, TABLE)
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="", opener=durable.fresh) as file:
        csv_files.write(file, [("file", "label", "probability", "error"), *map(_table_row, rows)])


def _table_row(row: Row) -> tuple[Any, ...]:
    ordered = row.get("predictions") or row.get("shares") or [dict.fromkeys(("label", "share"), "")]
    label, share = ordered[0].values()
    return row["file"], label, share, row.get("error", "")
