"""Measure a calibration: runs in speed mode, and workers, each in processes of their own."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from evidence.scale.calibration import Calibration, Messages, Sample
from evidence.scale.reducers import REDUCERS
from zoo import data, program
from zoo.bench import estimate
from zoo.commands.options import recipe_words, request_of
from zoo.data.errors import UserError
from zoo.distributed.rendezvous import free_port
from zoo.logs.journal import Event, history
from zoo.models import load_spec, resolve_arch
from zoo.run import schedule
from zoo.run.request import Request

BUCKET = 25 * 2**20  # bytes: the default of PyTorch's and Paddle's data parallel wrappers
POLL_INTERVAL = 0.1  # seconds
MAX_LOG = 2000  # characters of a process that failed
VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


class Command(NamedTuple):
    """A process to start."""

    words: Sequence[str]
    variables: Mapping[str, str]  # environment variables, beside those of this process
    log: Path  # new file for its output


report = partial(print, file=sys.stderr, flush=True)


def calibrate(arguments: argparse.Namespace) -> Calibration:
    """Measure everything that a command line asks for, one part after the other.

    Raises:
        UserError: the recipe divides a fixed global batch, its data are missing, or a process failed.
    """
    request, processes = request_of(arguments), sorted({1, *arguments.processes})
    recipe = recipe_words(arguments)
    timing = ["--speed", "--drop", str(arguments.drop), "--count", str(arguments.count)]
    if request.config.train.global_batch is not None:
        raise UserError(
            "train.global_batch: predictions keep the samples per process, so that the global batch grows with the "
            "processes; leave it out with -o train.global_batch="
        )
    if (framework := request.config.framework) not in REDUCERS:
        raise UserError(f"framework: all-reduces are measured in {', '.join(REDUCERS)}, not in {framework}; take one")
    sent = messages(request)  # first: what is wrong with the data or the model is found at once
    steps: dict[int, list[list[float]]] = {n: [] for n in processes}
    rates: dict[int, list[float]] = {}
    sweep: list[Sample] = []
    runs: dict[int, list[float]] = {
        size: [] for size in sorted(arguments.worlds) if size > 1
    }  # one process: measured as a copy
    device = ""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):  # in turn: a slow moment of the machine hurts all alike
            for n in processes:
                seconds, wait = _copies([*recipe, *timing], n, Path(folder) / f"copies-{n}-{number}")
                steps[n].append(seconds)
                report(f"{n} process(es), each for itself: {_milliseconds(seconds)}, {wait:.0%} waiting for data")
            for size, timed in runs.items():
                path = Path(folder) / f"run-{size}-{number}"
                run([_command([*recipe, *timing], size, path, {})])
                seconds, _ = _read_speed(path)
                timed += seconds
                report(f"a run of {size} processes: {_milliseconds(seconds)}")
        for n in processes:
            result = _workers(recipe, n, Path(folder) / f"workers-{n}.json")
            device, rates[n] = device or result["device"], result["input"]
            sweep += [Sample(*row) for row in result["all_reduce"]]
            report(f"{n} process(es) read {sum(rates[n]) / len(rates[n]):.1f} samples/s")
    batch = schedule.batch_plan(request.config.train, 1)
    per_update = batch.batch * batch.accumulate
    return Calibration(request.recipe, framework, device, per_update, steps, rates, sweep, sent, runs)


def _copies(options: Sequence[str], count: int, folder: Path) -> tuple[list[float], float]:
    """Time several processes at once, each a run of its own on a device of its own.

    Returns:
        Seconds of the updates of all, less their share of waiting for data, and the mean of that share.

    Raises:
        UserError: a run failed, or this host has fewer devices.
    """
    threads = max(1, len(psutil.Process().cpu_affinity() or [0]) // count)
    variables = {} if count == 1 else {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
    folders = [folder.with_name(f"{folder.name}-{i}") for i in range(count)]
    run([_command(options, 1, run, {**variables, **_device(i)}) for i, run in enumerate(folders)])
    kinds = {re.split("[ :]", _event(run, "begin")["device"])[0] for run in folders}  # cpu, cuda or npu
    if len(kinds) > 1:
        raise UserError(f"--processes {count}: they ran on {' and '.join(sorted(kinds))}; this host has fewer devices")
    speeds = [_read_speed(run) for run in folders]
    seconds = [value * (1 - wait) for values, wait in speeds for value in values]
    return seconds, sum(wait for _, wait in speeds) / count


def _command(options: Sequence[str], size: int, folder: Path, variables: dict[str, str]) -> Command:
    """Return the command of a run of one or several processes of this host."""
    words = program.command("launch", f"1x{size}", "--logs", f"{folder}-logs", "--out", str(folder), *options)
    return Command(words, variables, Path(f"{folder}.log"))


def _device(index: int) -> dict[str, str]:
    """Return the variables that leave a process one device alone."""
    variables = {}
    for name in VISIBLE_DEVICES:
        visible = [word for word in os.environ.get(name, "").split(",") if word]
        variables[name] = visible[index] if index < len(visible) else "" if visible else str(index)
    return variables


def _workers(recipe: Sequence[str], count: int, out: Path) -> dict[str, Any]:
    """Run evidence.scale.worker in several processes."""
    words = [sys.executable, "-m", "evidence.scale.worker", str(out), *recipe]
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    ranks = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    run([Command(words, variables, Path(f"{out}-{rank}.log")) for rank, variables in enumerate(ranks)])
    with open(out, encoding="utf-8") as file:
        return json.load(file)


def _read_speed(folder: Path) -> tuple[list[float], float]:
    """Return the seconds of the timed updates of a run, and the share of waiting for data."""
    event = _event(folder, "speed")
    scale = event["seconds"] * 1000 / sum(event["step_ms"]["all"])  # the slowest rank's clock
    return [value / 1000 * scale for value in event["step_ms"]["all"]], event["data_wait_fraction"]


def _event(folder: Path, name: str) -> Event:
    event = next((event for event in reversed(history(str(folder))) if event["event"] == name), None)
    if event is None:
        raise UserError(f"{folder}: the run ended without an event `{name}`; try it alone with zoo train --speed")
    return event


def _milliseconds(seconds: Sequence[float]) -> str:
    return f"{1000 * sum(seconds) / len(seconds):.1f} ms per update"


def messages(request: Request) -> Messages:
    """Count the messages of an update of a recipe."""
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


def run(commands: Sequence[Command]) -> None:
    """Run processes at once; the first that fails ends the others."""
    path = os.pathsep.join(filter(None, (str(program.ROOT), os.environ.get("PYTHONPATH", ""))))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with open(command.log, "xb") as log:
                environment = {**os.environ, "PYTHONPATH": path, **command.variables}
                processes.append(subprocess.Popen(command.words, stdout=log, stderr=subprocess.STDOUT, env=environment))
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            time.sleep(POLL_INTERVAL)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    for command, code in zip(commands, codes):
        if code:
            output = command.log.read_text(encoding="utf-8", errors="replace")[-MAX_LOG:].strip()
            raise UserError(f"a process of the calibration failed; the end of its output:\n{output}")
