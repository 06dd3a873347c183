"""The work of `tools/bench.py deploy`."""

import argparse
import os
import tempfile
from typing import Any

import numpy as np

from zoo.bench.timing.deploy import contenders, models, report
from zoo.bench.timing.deploy.report import Measured, Row
from zoo.bench.timing.deploy.turns import measure
from zoo.commands.new_file import require_new
from zoo.data import host
from zoo.data.errors import UserError
from zoo.distributed import machine
from zoo.run import cli
from zoo.trainer import load_backend, load_onnx_backend

COUNT, SECONDS, BATCH = 100, 60.0, 4
ROUND = 3  # calls of each contender with several samples, in turns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add(
        "--models",
        metavar="RECIPE,...",
        default=",".join(models.CLASSES),
        help="recipes whose models are timed, with initial weights; default %(default)s",
    )
    add("-n", "--count", type=int, default=COUNT, metavar="N", help="calls with one sample; default %(default)s")
    add("--seconds", type=float, default=SECONDS, metavar="S", help="limit of them for a model; default %(default)g")
    add("--batch", type=int, default=BATCH, metavar="N", help="samples of the throughput's calls; default %(default)s")
    add("--threads", type=int, metavar="N", help="default OMP_NUM_THREADS, or the cores of this process")
    add("--json", metavar="FILE", help="write what was measured to a new file, too")
    cli.add_override_argument(parser, "change one key of the recipes, such as -o model.width=8; repeatable")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the models and print the table; return what was measured.

    Raises:
        UserError: an option is wrong, or PyTorch, onnx or ONNX Runtime is missing.
    """
    names = _names(arguments)
    require_new(arguments.json, "--json")
    if arguments.threads:
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # before a framework is imported
    elif "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(len(host.cores()))
    load_backend("torch")
    load_onnx_backend()
    measured = []
    for name in names:
        print(f"{name} ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            measured.append(_measure(models.build(name, arguments.override, folder), arguments, folder))
    description = (
        f"{os.environ['OMP_NUM_THREADS']} threads, {machine.cpu_name()}; the load of the machine "
        f"was {os.getloadavg()[0]:.1f} at the end"
    )
    print("\n".join([*report.table(measured, arguments.batch), "", description]))
    return {"machine": description, "models": report.as_json(measured)}


def _measure(sized: models.Sized, arguments: argparse.Namespace, folder: str) -> Measured:
    checkpoint = sized.checkpoint
    forwards = {"PyTorch": contenders.torch(checkpoint)}
    sizes = {"PyTorch": os.path.getsize(checkpoint.file)}
    for precision in ("fp32", "int8"):
        path = models.export(sized, precision, os.path.join(folder, f"{precision}.onnx"))
        name = f"ONNX Runtime {precision}"
        forwards[name], sizes[name] = contenders.onnx(checkpoint, path), os.path.getsize(path)
    pixels = np.random.default_rng(0).integers(0, 256, (arguments.batch, *sized.shape), np.uint8)
    one = measure(forwards, pixels[:1], arguments.count, arguments.seconds)
    many = measure(forwards, pixels, ROUND, arguments.seconds) if arguments.batch > 1 else one
    rows = [Row(name, sizes[name], one[name], many[name]) for name in forwards]
    return Measured(sized.recipe, sized.shape, sized.parameters, sized.flops, rows)


def _names(arguments: argparse.Namespace) -> list[str]:
    for key in ("count", "batch", "threads"):
        value = getattr(arguments, key)
        if value is not None and value < 1:
            raise UserError(f"--{key}: must be at least 1")
    if not arguments.seconds > 0:
        raise UserError("--seconds: must be above 0")
    names = arguments.models.split(",")
    for name in names:
        if name not in models.CLASSES:
            raise UserError(f"--models: there is no {name!r}; choose from {', '.join(models.CLASSES)}")
    return names
