"""Speed runs as their journals record them, and the cases that they belong to."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.matrix.cases import BASE
from zoo.bench.matrix.folder import recorded_matrix
from zoo.data.errors import UserError
from zoo.data.parsing import parsing
from zoo.logs import journal


class Key(NamedTuple):
    """What runs must have in common to be repeats of each other."""

    recipe: str
    framework: str
    precision: str
    batch: int  # samples per process and micro-batch
    hosts: int
    processes: int  # of all hosts

    def __str__(self) -> str:
        world = f"{self.hosts}x{self.processes // self.hosts}"
        return f"{self.recipe} {self.framework} {self.precision} {world} batch {self.batch}"


class SpeedRun(NamedTuple):
    """A speed run.

    Attributes:
        folder: of the run.
        key: its case.
        protocol: identifier of data and evaluation.
        samples_per_s: over all processes.
        step_ms: milliseconds of every timed step.
        p50, p90, p99: quantiles of step_ms.
        data_wait: share of the time in which the loop waited for data.
        flops_per_s: of training, over all processes; None if the model's operations are not counted.
        host_memory: peak resident memory of all processes in bytes; None if it is not known.
        device_memory: peak memory of the fullest device in bytes; None on a CPU.
    """

    folder: str
    key: Key
    protocol: str | None
    samples_per_s: float
    step_ms: tuple[float, ...]
    p50: float
    p90: float
    p99: float
    data_wait: float
    flops_per_s: float | None
    host_memory: int | None
    device_memory: int | None


def read(run: Path) -> SpeedRun | None:
    """Read a run; None if it is no speed run, or has not reached its end.

    Raises:
        UserError: its journal lacks a field.
    """
    events = {event.get("event"): event for event in journal.history(str(run))}
    if not {"begin", "speed", "end"} <= events.keys():
        return None
    begin, speed, train = events["begin"], events["speed"], events.get("train", {})
    with parsing(f"{run / journal.FILE}: is no journal of a speed run of this version", "run the case again"):
        key = Key(
            str(begin["recipe"]),
            str(begin["framework"]),
            str(begin["precision"]),
            int(begin["batch"]),
            len(begin["hosts"]),
            int(begin["ranks"]),
        )
        step_ms = speed["step_ms"]
        values = tuple(map(float, step_ms["all"]))
        p50, p90, p99 = (float(step_ms[name]) for name in ("p50", "p90", "p99"))
        rate, wait = float(speed["samples_per_s"]), float(speed["data_wait_fraction"])
    if not rate > 0 or not values:
        raise UserError(f"{run / journal.FILE}: the speed run has no speed")
    return SpeedRun(
        folder=str(run),
        key=key,
        protocol=begin.get("protocol"),
        samples_per_s=rate,
        step_ms=values,
        p50=p50,
        p90=p90,
        p99=p99,
        data_wait=wait,
        flops_per_s=speed.get("flops_per_s"),
        host_memory=train.get("host_memory_bytes"),
        device_memory=train.get("device_memory_bytes"),
    )


def read_folder(folder: Path, option: str) -> dict[Key, list[SpeedRun]]:
    """Read all speed runs below a folder, which may be one itself.

    Args:
        folder: of a matrix, a part of one, or a run.
        option: that names it, for messages.

    Raises:
        UserError: there is none, or the folder holds several variants.
    """
    if not folder.is_dir():
        raise UserError(f"{option} {folder}: there is no such folder")
    matrix = recorded_matrix(folder)
    if matrix and matrix.get("variants"):
        raise UserError(f"{option} {folder}: this matrix has variants; name one of them, such as {folder / BASE}")
    found: dict[Key, list[SpeedRun]] = {}
    for path in sorted(path for path, _, names in os.walk(folder) if journal.FILE in names):
        run = read(Path(path))
        if run:
            found.setdefault(run.key, []).append(run)
    if not found:
        raise UserError(f"{option} {folder}: there is no complete speed run below it (train.py --speed)")
    return found


def as_json(run: SpeedRun) -> dict[str, Any]:
    """Return what a results file has of a run."""
    values = run._asdict()
    del values["key"], values["step_ms"]
    return values


def speeds(runs: Sequence[SpeedRun]) -> list[float]:
    """Return the samples per second of runs."""
    return [run.samples_per_s for run in runs]
