"""Measurements of a host as a JSON file: updates, reading, all-reduces, and the messages of a recipe."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zoo.commands.new_file import write_new
from zoo.data.errors import UserError, parsing
from zoo.data.formats import regular

FORMAT = 2
REMEDY = "write it with `python -m evidence scale calibrate`"


class Sample(NamedTuple):
    """An all-reduce of `size` bytes that was timed; the median of its repeats."""

    processes: int
    size: int
    seconds: float


class Messages(NamedTuple):
    """Messages of an update."""

    gradients: int  # bytes that are all-reduced
    # parts of them that are all-reduced one after the other during the backward pass; 1: all at its end
    buckets: int = 1
    synchronized: int = 0  # small all-reduces that both passes wait for: two per synchronized batch norm
    # bytes of each process that all others receive, twice: embeddings of a split classifier, and their gradients
    gathered: int = 0


class Calibration(NamedTuple):
    """Measurements of a recipe."""

    recipe: str  # name of the recipe
    framework: str  # name of the framework
    device: str  # description of the device
    batch: int  # samples per process and update
    # processes that ran at once, each for itself -> seconds of their updates, round by round
    steps: dict[int, list[list[float]]]
    # processes -> samples per second that a host reads for all of them, of several passes
    input: dict[int, list[float]]
    sweep: list[Sample]  # all-reduces within a host
    messages: Messages  # messages of an update
    runs: dict[int, list[float]]  # processes of whole runs -> seconds of their updates

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
    """Write a calibration to a new file."""
    content = {"format": FORMAT, **calibration._asdict()}
    content["sweep"] = [sample._asdict() for sample in calibration.sweep]
    content["messages"] = calibration.messages._asdict()
    write_new(json.dumps(content, indent=1) + "\n", path, "--out")


def read(path: str) -> Calibration:
    """Read a calibration."""
    with parsing(f"{path}: no calibration", REMEDY):
        content = dict(regular.load_json(path))
        if content.pop("format") != FORMAT:
            raise UserError(f"{path}: no calibration of format {FORMAT}; {REMEDY}")
        content |= {key: {int(n): values for n, values in content[key].items()} for key in ("steps", "input", "runs")}
        content["sweep"] = [Sample(**sample) for sample in content["sweep"]]
        content["messages"] = Messages(**content["messages"])
        return Calibration(**content)
