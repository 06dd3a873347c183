"""Measure a calibration: train.py in speed mode, and workers, each in processes of their own."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from zoo.bench.scale import processes
from zoo.bench.scale.calibration import Calibration, Run
from zoo.bench.scale.cluster import Cluster
from zoo.bench.scale.collectives import Sample
from zoo.bench.scale.processes import Command
from zoo.bench.scale.sent import messages
from zoo.data.errors import UserError
from zoo.distributed.addresses import free_port
from zoo.logs.journal import Event, history
from zoo.run import cli, schedule

VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


class Plan(NamedTuple):
    """What to measure.

    Attributes:
        arguments: options of train.py that select the recipe.
        request: the recipe that results.
        worlds: processes of whole runs, on this host.
        processes: numbers of processes that compute, read and all-reduce at once.
        rounds: repetitions of all runs.
        drop: updates before the clock of a run starts.
        timed: updates after that.
    """

    arguments: list[str]
    request: cli.Request
    worlds: list[int]
    processes: list[int]
    rounds: int
    drop: int
    timed: int


def calibrate(plan: Plan, report: Callable[[str], None]) -> Calibration:
    """Measure everything, one part after the other.

    Args:
        plan: what to measure.
        report: takes a line on each part that has been measured.

    Raises:
        UserError: the recipe divides a fixed global batch, its data are missing, or a process failed.
    """
    if plan.request.config.train.global_batch is not None:
        raise UserError(
            "train.global_batch: predictions keep the samples per process, so that the global batch grows with the "
            "processes; leave it out with -o train.global_batch="
        )
    sent = messages(plan.request)  # first: what is wrong with the data or the model is found at once
    steps: dict[int, list[list[float]]] = {n: [] for n in plan.processes}
    rates: dict[int, list[float]] = {}
    sweep: list[Sample] = []
    runs: dict[int, list[float]] = {size: [] for size in plan.worlds if size > 1}  # one process: measured as a copy
    device = ""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(plan.rounds):  # in turn: a slow moment of the machine hurts all alike
            for n in plan.processes:
                seconds, wait = _copies(plan, n, Path(folder) / f"copies-{n}-{number}")
                steps[n].append(seconds)
                report(f"{n} process(es), each for itself: {_milliseconds(seconds)}, {wait:.0%} waiting for data")
            for size, timed in runs.items():
                seconds = _run(plan, size, Path(folder) / f"run-{size}-{number}")
                timed += seconds
                report(f"a run of {size} processes: {_milliseconds(seconds)}")
        for n in plan.processes:
            result = _workers(plan, n, Path(folder) / f"workers-{n}.json")
            device, rates[n] = device or result["device"], result["input"]
            sweep += [Sample(row["processes"], row["bytes"], row["seconds"]) for row in result["all_reduce"]]
            report(f"{n} process(es) read {sum(rates[n]) / len(rates[n]):.1f} samples/s")
    train = plan.request.config.train
    batch = schedule.batch_plan(train, 1)
    return Calibration(
        plan.request.recipe,
        plan.request.config.framework,
        device,
        batch.batch * batch.accumulate,
        steps,
        rates,
        sweep,
        sent,
        [Run(Cluster(1, size), seconds) for size, seconds in runs.items()],
    )


def _copies(plan: Plan, count: int, folder: Path) -> tuple[list[float], float]:
    """Time several processes at once, each a run of its own on a device of its own.

    Returns:
        Seconds of the updates of all, less their share of waiting for data, and the mean of that share.

    Raises:
        UserError: a run failed, or this host has fewer devices.
    """
    threads = max(1, len(psutil.Process().cpu_affinity() or [0]) // count)
    variables = {} if count == 1 else {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
    folders = [folder.with_name(f"{folder.name}-{i}") for i in range(count)]
    processes.run([_command(plan, 1, run, {**variables, **_device(i)}) for i, run in enumerate(folders)])
    kinds = {_device_kind(run) for run in folders}
    if len(kinds) > 1:
        raise UserError(f"--processes {count}: they ran on {' and '.join(sorted(kinds))}; this host has fewer devices")
    speeds = [_read_speed(run) for run in folders]
    seconds = [value * (1 - wait) for values, wait in speeds for value in values]
    return seconds, sum(wait for _, wait in speeds) / count


def _run(plan: Plan, size: int, folder: Path) -> list[float]:
    """Return the seconds of the timed updates of a run of several processes."""
    processes.run([_command(plan, size, folder, {})])
    return _read_speed(folder)[0]


def _command(plan: Plan, size: int, folder: Path, variables: dict[str, str]) -> Command:
    """Return the command of a speed run of one or several processes of this host."""
    world = ["-m", "zoo.commands.launch", f"1x{size}", "--logs", f"{folder}-logs", "--out", str(folder)]
    timing = ["--speed", "--drop", str(plan.drop), "--count", str(plan.timed)]
    return Command([sys.executable, *world, *plan.arguments, *timing], variables, Path(f"{folder}.log"))


def _device(index: int) -> dict[str, str]:
    """Return the variables that leave a process one device alone."""
    variables = {}
    for name in VISIBLE_DEVICES:
        visible = [word for word in os.environ.get(name, "").split(",") if word]
        variables[name] = visible[index] if index < len(visible) else "" if visible else str(index)
    return variables


def _workers(plan: Plan, count: int, out: Path) -> dict[str, Any]:
    """Run tools/bench/scale/worker.py in several processes."""
    words = [sys.executable, "-m", "zoo.bench.scale.worker", str(out), *plan.arguments]
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    ranks = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    processes.run([Command(words, variables, Path(f"{out}-{rank}.log")) for rank, variables in enumerate(ranks)])
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def _read_speed(folder: Path) -> tuple[list[float], float]:
    """Return the seconds of the timed updates of a run, and the share of waiting for data."""
    event = _event(folder, "speed")
    scale = event["seconds"] * 1000 / sum(event["step_ms"]["all"])  # the slowest rank's clock
    return [value / 1000 * scale for value in event["step_ms"]["all"]], event["data_wait_fraction"]


def _device_kind(folder: Path) -> str:
    """Return the kind of device that a run had: cpu, cuda or npu."""
    return _event(folder, "begin")["device"].partition(" ")[0].partition(":")[0]


def _event(folder: Path, name: str) -> Event:
    event = next((event for event in reversed(history(str(folder))) if event["event"] == name), None)
    if event is None:
        raise UserError(f"{folder}: the run ended without an event `{name}`; try it alone with train.py --speed")
    return event


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{1000 * sum(seconds) / len(seconds):.1f} ms per update"
