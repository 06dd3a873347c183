"""The folder of predictions: a line of JSON per file, written as it goes, so that a killed call can go on."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, NamedTuple

from zoo.data import durable
from zoo.data.errors import UserError, natural, parsing
from zoo.data.formats import csv_files
from zoo.predict.results import Row

ORIGIN, ROWS, TABLE = "origin.json", "predictions.jsonl", "predictions.csv"
PARTS, LOCK = "parts", "lock"  # folders of the parts in that of predictions, and a file in there
PART = re.compile(rf"\d+-of-\d+|{LOCK}")


class Part(NamedTuple):
    """One of several consecutive parts of the files, each of which another program may predict."""

    number: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Parse K/N. Raises UserError."""
        number, parts = map(natural, (text.partition("/")[0], text.partition("/")[2]))
        if number is None or not parts or number >= parts:
            raise UserError(f"--part {text}: expected K/N, the K-th of N parts, counted from 0, such as 0/8")
        return cls(number, parts)

    def of(self, files: int) -> slice:
        return slice(files * self.number // self.parts, files * (self.number + 1) // self.parts)

    def folder(self, out: str) -> str:
        """Return the folder of this part in that of the predictions, which is that of a single part."""
        return out if self.parts == 1 else os.path.join(out, PARTS, f"{self.number}-of-{self.parts}")


def require_ours(folder: str | None, may_go_on: bool) -> None:
    """Raise UserError unless a folder is new, empty or, if a call may go on there, one of predictions."""
    is_free = not folder or not os.path.lexists(folder) or (os.path.isdir(folder) and not os.listdir(folder))
    if folder and not is_free and not (may_go_on and _is_ours(folder)):
        raise UserError(f"--out: {folder} exists already and is not overwritten; choose another folder")


def _is_ours(folder: str) -> bool:
    """Return whether a folder holds predictions, or parts of some, which may just begin."""
    parts = os.path.join(folder, PARTS)
    inside = os.listdir(parts) if os.path.isdir(parts) else [""]
    has_parts = all(map(PART.fullmatch, inside)) and bool(inside or os.listdir(folder) == [PARTS])
    return os.path.isfile(os.path.join(folder, ORIGIN)) or has_parts


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
            _write_origin(path, model)
        rows = _whole_rows(file)
        if [row["file"] for row in rows] != list(files[: len(rows)]):
            raise UserError(f"--out: {folder} holds predictions of other files; choose another folder")
        closed_on_error.pop_all()
    return rows, file


@contextmanager
def joined(
    folder: str, part: Part, model: Mapping[str, Any], files: Sequence[str], rows: list[Row]
) -> Iterator[list[Row] | None]:
    """Give the rows of all parts, and write them when the block ends; None if some are missing, or written already.

    Args:
        part: that has been written last.
        model, files: as those of `begin`.
        rows: of this part.
    """
    if part.parts == 1:
        yield rows
        return
    path, done = os.path.join(folder, ORIGIN), os.path.join(folder, ROWS)
    with open(os.path.join(folder, PARTS, LOCK), "ab", opener=durable.regular) as lock:
        durable.lock(lock, wait=True)
        found = None if os.path.exists(path) else _rows_of_parts(folder, part.parts, model, files)
        yield found
        if found is not None:
            durable.replace(done, b"".join(json.dumps(row).encode() + b"\n" for row in found), f"{done}.part")
            _write_origin(path, model)


def _rows_of_parts(folder: str, parts: int, model: Mapping[str, Any], files: Sequence[str]) -> list[Row] | None:
    rows: list[Row] = []
    for part in (Part(number, parts) for number in range(parts)):
        path, names = part.folder(folder), files[part.of(len(files))]
        if not os.path.exists(os.path.join(path, ORIGIN)):
            return None
        _require_same(path, os.path.join(path, ORIGIN), json.loads(json.dumps(model)))
        file_of_part = os.path.join(path, ROWS)
        with parsing(f"--out: {file_of_part} is damaged", "remove it"), open(file_of_part, "rb") as file:
            found = [json.loads(line) for line in file if line.endswith(b"\n")]
        if [row["file"] for row in found] != list(names):
            return None
        rows += found
    return rows


def _write_origin(path: str, model: Mapping[str, Any]) -> None:
    durable.replace(path, (json.dumps(model, indent=1) + "\n").encode(), f"{path}.part")


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
    """Write the most probable class of each file, all classes that it has, or the largest of a scene, as CSV."""
    path = os.path.join(folder, TABLE)
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="", opener=durable.fresh) as file:
        csv_files.write(file, [("file", "label", "probability", "error"), *map(_table_row, rows)])


def _table_row(row: Row) -> tuple[Any, ...]:
    ordered = row.get("predictions") or row.get("shares") or [dict.fromkeys(("label", "share"), "")]
    label, share = ordered[0].values()
    label = "|".join(row["labels"]) if "labels" in row else row.get("person", label)
    return row["file"], label, share, row.get("error", "")
