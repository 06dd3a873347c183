"""Measure a calibration: train.py in speed mode, and workers, each in processes of their own."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import data
from data.errors import UserError
from tools import estimate
from tools.scaling.calibration import Calibration, Messages, Run
from tools.scaling.cluster import Cluster
from tools.scaling.collectives import Sample
from zoo.distributed.addresses import free_port
from zoo.logs.journal import history
from zoo.models import load_spec, resolve_arch
from zoo.run import cli, schedule

ROOT = Path(__file__).resolve().parents[2]
BUCKET = 25 * 2**20  # bytes: the default of PyTorch's and Paddle's data parallel wrappers
TIMEOUT = 3600  # seconds
MAX_LOG = 2000  # characters of a process that failed


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
    steps: dict[int, list[float]] = {n: [] for n in plan.processes}
    rates: dict[int, list[float]] = {}
    sweep: list[Sample] = []
    runs: dict[int, list[float]] = {size: [] for size in plan.worlds if size > 1}  # one process: measured as a copy
    device = ""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(plan.rounds):  # in turn: a slow moment of the machine hurts all alike
            for n in plan.processes:
                seconds, wait = _copies(plan, n, Path(folder) / f"copies-{n}-{number}")
                steps[n] += seconds
                report(f"{n} process(es), each for itself: {_milliseconds(seconds)}, {wait:.0%} waiting for data")
            for size, timed in runs.items():
                seconds, _ = _read_speed(_finish([_launch(plan, size, Path(folder) / f"run-{size}-{number}", {})])[0])
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


def messages(request: cli.Request) -> Messages:
    """Count what an update of a recipe sends.

    Raises:
        UserError: the data are missing, or the recipe contradicts them.
    """
    config = request.config
    spec = load_spec(request.resolved["model.name"].value)
    train_set, _ = data.find(request.resolved["data.name"].value).load(config.data)
    arch = resolve_arch(spec, config.model, train_set.fields, len(train_set.classes))
    shapes = spec.shapes(arch)
    split = {name: shape for name, shape in shapes.items() if name in spec.SHARDED_PARAMETERS}
    trained = {
        name: shape for name, shape in shapes.items() if name not in split and estimate.is_trained(spec, arch, name)
    }
    plan = schedule.batch_plan(config.train, 1)
    size = estimate.bytes_of(trained)
    whole = config.framework == "mindspore" or (config.framework == "paddle" and config.train.fp16_allreduce)
    norms = sum(name.endswith(".running_mean") for name in shapes)
    width = sum(shape[1] for shape in split.values())
    return Messages(
        gradients=size // (2 if config.train.fp16_allreduce else 1),
        buckets=1 if whole else -(-size // BUCKET),
        synchronized=2 * norms if config.train.sync_bn else 0,
        gathered=plan.batch * plan.accumulate * width * estimate.FP32_SIZE,
    )


def _copies(plan: Plan, count: int, folder: Path) -> tuple[list[float], float]:
    """Time several processes at once, each a run of its own.

    Returns:
        Seconds of the updates of all, less their share of waiting for data, and the mean of that share.
    """
    threads = max(1, len(psutil.Process().cpu_affinity() or [0]) // count)
    variables = {} if count == 1 else {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
    runs = _finish([_launch(plan, 1, folder.with_name(f"{folder.name}-{i}"), variables) for i in range(count)])
    speeds = [_read_speed(run) for run in runs]
    seconds = [value * (1 - wait) for values, wait in speeds for value in values]
    return seconds, sum(wait for _, wait in speeds) / count


def _launch(plan: Plan, size: int, folder: Path, variables: dict[str, str]) -> "_Process":
    """Start a speed run of one or several processes of this host."""
    world = ["-m", "tools.launch", f"1x{size}", "--logs", f"{folder}-logs", "--out", str(folder)]
    timing = ["--speed", "--drop", str(plan.drop), "--count", str(plan.timed)]
    return _Process(folder, _start([sys.executable, *world, *plan.arguments, *timing], variables))


class _Process(NamedTuple):
    """A run that was started. folder: of the run."""

    folder: Path
    process: subprocess.Popen[str]


def _workers(plan: Plan, count: int, out: Path) -> dict[str, Any]:
    """Run tools/scaling/worker.py in several processes."""
    port = free_port("127.0.0.1")
    command = [sys.executable, "-m", "tools.scaling.worker", str(out), *plan.arguments]
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = [
        _Process(out, _start(command, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})) for rank in range(count)
    ]
    _finish(started)
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def _start(command: Sequence[str], variables: dict[str, str]) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": path, **variables},
    )


def _finish(started: Sequence[_Process]) -> list[Path]:
    """Wait for processes, and return their folders. Raises UserError if one fails."""
    with _ended(started):
        for run in started:
            output, _ = run.process.communicate(timeout=TIMEOUT)
            if run.process.returncode:
                raise UserError(f"a process of the calibration failed:\n{output[-MAX_LOG:].strip()}")
    return [run.folder for run in started]


@contextlib.contextmanager
def _ended(started: Sequence[_Process]) -> Iterator[None]:
    """End what is left of the processes on the way out."""
    try:
        yield
    finally:
        for run in started:
            if run.process.poll() is None:
                run.process.terminate()
                run.process.wait()


def _read_speed(folder: Path) -> tuple[list[float], float]:
    """Return the seconds of the timed updates of a run, and the share of waiting for data."""
    event = next((event for event in reversed(history(str(folder))) if event["event"] == "speed"), None)
    if event is None:
        raise UserError(f"{folder}: the run ended without a `speed` event; try it alone with train.py --speed")
    scale = event["seconds"] * 1000 / sum(event["step_ms"]["all"])  # the slowest rank's clock
    return [value / 1000 * scale for value in event["step_ms"]["all"]], event["data_wait_fraction"]


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{1000 * sum(seconds) / len(seconds):.1f} ms per update"
