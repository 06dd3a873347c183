"""Calibrations as JSON files."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.bench.scale.calibration import Calibration, Messages, Run
from zoo.bench.scale.cluster import Cluster
from zoo.bench.scale.collectives import Sample
from zoo.data.errors import UserError
from zoo.data.formats import budgeted_json
from zoo.data.parsing import parsing

FORMAT = 1
LARGEST = 1e30  # number that is used, so that products and sums stay finite
REMEDY = "write it with `tools/scale.py calibrate`"


def write(calibration: Calibration, path: str) -> None:
    """Write a calibration to a new file.

    Raises:
        UserError: the file exists, or cannot be written.
    """
    text = json.dumps(
        {
            "format": FORMAT,
            **{key: getattr(calibration, key) for key in ("recipe", "framework", "device", "batch")},
            "steps": [{"processes": n, "rounds": rounds} for n, rounds in calibration.steps.items()],
            "input": [{"processes": n, "samples_per_s": values} for n, values in calibration.input.items()],
            "all_reduce": [
                {"processes": sample.processes, "bytes": sample.size, "seconds": sample.seconds}
                for sample in calibration.sweep
            ],
            "messages": calibration.messages._asdict(),
            "runs": [{**run.cluster._asdict(), "seconds": run.seconds} for run in calibration.runs],
        },
        indent=1,
    )
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise UserError(f"--out {path}: {error.strerror}") from None


def read(path: str) -> Calibration:
    """Read a calibration.

    Raises:
        UserError: the file cannot be read, or a key is missing or has a wrong value.
    """
    with parsing(f"{path}: no JSON", REMEDY):
        content = budgeted_json.load(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path}: no calibration of format {FORMAT}; {REMEDY}")
    return _build(_Reader(path, content))


class _Reader:
    """Values of a mapping, with messages that name the file and the key."""

    def __init__(self, path: str, content: Mapping[str, Any], place: str = ""):
        self.path, self.content, self.place = path, content, place

    def error(self, key: str, expected: str) -> UserError:
        return UserError(f"{self.path}: {self.place}{key}: expected {expected}, got {self.content.get(key)!r}")

    def text(self, key: str) -> str:
        value = self.content.get(key)
        if not isinstance(value, str):
            raise self.error(key, "a text")
        return value

    def integer(self, key: str, minimum: int) -> int:
        value = self.content.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= LARGEST:
            raise self.error(key, f"a whole number from {minimum} on")
        return value

    def positive(self, key: str) -> float:
        value = self.content.get(key)
        if not _is_positive(value):
            raise self.error(key, "a positive number")
        return float(value)  # type: ignore[arg-type]

    def positives(self, key: str) -> list[float]:
        value = self.content.get(key)
        if not isinstance(value, list) or not value or not all(map(_is_positive, value)):
            raise self.error(key, "a list of positive numbers")
        return [float(number) for number in value]

    def rounds(self, key: str) -> list[list[float]]:
        value = self.content.get(key)
        if not isinstance(value, list) or not value:
            raise self.error(key, "a list of lists of positive numbers")
        numbered = {f"{key}[{i}]": numbers for i, numbers in enumerate(value)}
        return [_Reader(self.path, numbered, self.place).positives(name) for name in numbered]

    def rows(self, key: str, minimum: int) -> "Sequence[_Reader]":
        value = self.content.get(key)
        if not isinstance(value, list) or len(value) < minimum or not all(isinstance(row, dict) for row in value):
            raise self.error(key, f"a list of {minimum} objects or more")
        return [_Reader(self.path, row, f"{key}[{i}].") for i, row in enumerate(value)]

    def part(self, key: str) -> "_Reader":
        value = self.content.get(key)
        if not isinstance(value, dict):
            raise self.error(key, "an object")
        return _Reader(self.path, value, f"{key}.")


def _build(reader: _Reader) -> Calibration:
    messages = reader.part("messages")
    return Calibration(
        reader.text("recipe"),
        reader.text("framework"),
        reader.text("device"),
        reader.integer("batch", 1),
        {row.integer("processes", 1): row.rounds("rounds") for row in reader.rows("steps", 1)},
        {row.integer("processes", 1): row.positives("samples_per_s") for row in reader.rows("input", 0)},
        [
            Sample(row.integer("processes", 2), row.integer("bytes", 1), row.positive("seconds"))
            for row in reader.rows("all_reduce", 0)
        ],
        Messages(
            messages.integer("gradients", 0),
            messages.integer("buckets", 1),
            messages.integer("synchronized", 0),
            messages.integer("gathered", 0),
        ),
        [
            Run(Cluster(row.integer("hosts", 1), row.integer("cards", 1)), row.positives("seconds"))
            for row in reader.rows("runs", 0)
        ],
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1 / LARGEST <= value <= LARGEST
