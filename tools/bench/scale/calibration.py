"""Measurements of a host as a JSON file: updates, reading, all-reduces, and the messages of a recipe."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.bench.options import Cluster
from zoo.commands.new_file import write_new
from zoo.data.errors import UserError
from zoo.data.formats import regular
from zoo.data.parsing import parsing

FORMAT = 1
LARGEST = 1e30  # number that is used, so that products and sums stay finite
REMEDY = "write it with `zoo bench scale calibrate`"


class Sample(NamedTuple):
    """An all-reduce of `size` bytes that was timed; the median of its repeats."""

    processes: int
    size: int
    seconds: float


class Messages(NamedTuple):
    """Messages of an update.

    Attributes:
        gradients: bytes that are all-reduced.
        buckets: parts of them that are all-reduced one after the other during the backward pass; 1: all at its end.
        synchronized: small all-reduces that both passes wait for: two per synchronized batch norm.
        gathered: bytes of each process that all others receive, twice: embeddings of a split classifier, and their
            gradients.
    """

    gradients: int
    buckets: int = 1
    synchronized: int = 0
    gathered: int = 0


class Run(NamedTuple):
    """Updates of a run of several processes that were timed, with the seconds of each."""

    cluster: Cluster
    seconds: list[float]


class Calibration(NamedTuple):
    """Measurements of a recipe.

    Attributes:
        recipe: name of the recipe.
        framework: name of the framework.
        device: description of the device.
        batch: samples per process and update.
        steps: processes that ran at once, each for itself -> seconds of their updates, round by round.
        input: processes -> samples per second that a host reads for all of them, of several passes.
        sweep: all-reduces within a host.
        messages: messages of an update.
        runs: whole runs of several processes, perhaps on several hosts.
    """

    recipe: str
    framework: str
    device: str
    batch: int
    steps: dict[int, list[list[float]]]
    input: dict[int, list[float]]
    sweep: list[Sample]
    messages: Messages
    runs: list[Run]

    @property
    def is_cpu(self) -> bool:
        return self.device.startswith("cpu")

    def seconds_of(self, processes: int) -> np.ndarray:
        """Return seconds of updates where so many processes run on a host, each for itself.

        Between and beyond the measured numbers of processes the means are continued linearly.
        """
        measured = sorted(self.steps)
        nearest = max((n for n in measured if n <= processes), default=measured[0])
        base = _pool(self.steps[nearest])
        if processes in self.steps or len(measured) == 1:
            return base
        right = max(next((i for i, n in enumerate(measured) if n > processes), len(measured) - 1), 1)
        x0, x1 = measured[right - 1 : right + 1]
        y0, y1 = float(_pool(self.steps[x0]).mean()), float(_pool(self.steps[x1]).mean())
        slope = max((y1 - y0) / (x1 - x0), 0.0)
        return base * (y0 + slope * (processes - x0)) / base.mean()

    def input_rate(self, processes: int) -> float:
        """Return the samples per second that a host reads for its processes; beyond the measured numbers, no more."""
        if not self.input:
            return math.inf
        measured = sorted(self.input)
        rates = [float(np.mean(self.input[n])) for n in measured]
        if processes < measured[0]:
            return rates[0] * processes / measured[0]
        return float(np.interp(processes, measured, rates))


def _pool(rounds: Sequence[Sequence[float]]) -> np.ndarray:
    """Return the seconds of all rounds, each round scaled to the mean of all.

    A slow moment of a machine slows all of its processes alike: they do not wait for each other because of it.
    """
    mean = np.mean(np.concatenate([np.asarray(seconds) for seconds in rounds]))
    return np.concatenate([np.asarray(seconds) * (mean / np.mean(seconds)) for seconds in rounds])


def write(calibration: Calibration, path: str) -> None:
    """Write a calibration to a new file.

    Raises:
        UserError: the file exists, or cannot be written.
    """
    content = {
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
    }
    write_new(json.dumps(content, indent=1) + "\n", path, "--out")


def read(path: str) -> Calibration:
    """Read a calibration.

    Raises:
        UserError: the file cannot be read, or a key is missing or has a wrong value.
    """
    with parsing(f"{path}: no JSON", REMEDY):
        content = regular.load_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path}: no calibration of format {FORMAT}; {REMEDY}")
    with parsing(f"{path}: damaged calibration", REMEDY):
        return Calibration(
            str(content["recipe"]),
            str(content["framework"]),
            str(content["device"]),
            _integer(content, "batch"),
            {
                _integer(row, "processes"): [_numbers(numbers, "rounds") for numbers in _rows(row, "rounds", 1)]
                for row in _rows(content, "steps", 1)
            },
            {
                _integer(row, "processes"): _numbers(_rows(row, "samples_per_s", 1), "samples_per_s")
                for row in _rows(content, "input")
            },
            [
                Sample(_integer(row, "processes", 2), _integer(row, "bytes"), _number(row["seconds"], "seconds"))
                for row in _rows(content, "all_reduce")
            ],
            Messages(*(_integer(content["messages"], key, key == "buckets") for key in Messages._fields)),
            [
                Run(
                    Cluster(_integer(row, "hosts"), _integer(row, "cards")),
                    _numbers(_rows(row, "seconds", 1), "seconds"),
                )
                for row in _rows(content, "runs")
            ],
        )


def _rows(content: Mapping[str, Any], key: str, least: int = 0) -> list[Any]:
    if not isinstance(content[key], list) or len(content[key]) < least:
        raise ValueError(f"{key}: expected a list of {least} values or more")
    return content[key]


def _integer(row: Mapping[str, Any], key: str, least: int = 1) -> int:
    return int(_number(row[key], key, int, least))


def _number(value: Any, key: str, kind: Any = int | float, least: float = 1 / LARGEST) -> float:
    if not isinstance(value, kind) or isinstance(value, bool) or not least <= value <= LARGEST:
        raise ValueError(f"{key}: expected a {'whole' if kind is int else 'positive'} number, got {value!r}")
    return value if kind is int else float(value)


def _numbers(values: Sequence[Any], key: str) -> list[float]:
    return [_number(value, key) for value in values]
