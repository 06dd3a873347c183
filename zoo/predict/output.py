"""The folder of predictions: a line of JSON per file, written as it goes, so that a killed call can go on."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO

from zoo.data import durable
from zoo.data.errors import UserError, parsing
from zoo.data.formats import csv_files
from zoo.predict.results import Row

ORIGIN, ROWS, TABLE = "origin.json", "predictions.jsonl", "predictions.csv"


def require_ours(folder: str | None, may_go_on: bool) -> None:
    """Raise UserError unless a folder is new, empty or, if a call may go on there, one of predictions."""
    is_free = not folder or not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder))
    if folder and not is_free and not (may_go_on and os.path.isfile(os.path.join(folder, ORIGIN))):
        raise UserError(f"--out: {folder} exists already and is not overwritten; choose another folder")


def begin(folder: str, model: Mapping[str, Any], files: Sequence[str]) -> tuple[list[Row], BinaryIO]:
    """Make the folder of predictions, or take up those of a call that did not end.

    Args:
        folder: new, empty, or of an earlier call.
        model: what computes and decides the predictions, of JSON's types.
        files: names of all inputs, in order.

    Returns:
        The rows that are written already, those of the first files; and their file, at its end, which is locked.
    """
    path = os.path.join(folder, ORIGIN)
    os.makedirs(folder, exist_ok=True)
    with ExitStack() as closed_on_error:
        file = closed_on_error.enter_context(open(os.path.join(folder, ROWS), "ab+", opener=durable.regular))
        try:
            durable.lock(file)
        except BlockingIOError:
            raise UserError(f"--out: {folder} is being written by another process; choose another folder") from None
        if os.path.exists(path):
            _require_same(folder, path, json.loads(json.dumps(model)))
        else:
            durable.replace(path, (json.dumps(model, indent=1) + "\n").encode(), f"{path}.part")
        rows = _whole_rows(file)
        if [row["file"] for row in rows] != list(files[: len(rows)]):
            raise UserError(f"--out: {folder} holds predictions of other files; choose another folder")
        closed_on_error.pop_all()
    return rows, file


def _require_same(folder: str, path: str, model: Mapping[str, Any]) -> None:
    with parsing(f"--out: {path} is damaged", "choose another folder"), open(path, encoding="utf-8") as file:
        before = dict(json.load(file))
    for key in [*model, *before]:
        old, new = before.get(key), model.get(key)
        if old != new:
            raise UserError(f"--out: {folder} holds predictions with {key}={old}, not {new}; choose another folder")


def _whole_rows(file: BinaryIO) -> list[Row]:
    """Return the rows up to the first line that is not whole, and cut the file there."""
    rows: list[Row] = []
    end = 0
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
    file.seek(end)
    file.truncate()
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
