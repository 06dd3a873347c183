"""Time exported models: latency and throughput in PyTorch and in ONNX Runtime (fp32 and int8), called in turn."""

import argparse
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from zoo import program
from zoo.bench.interleave import Seconds, interleave
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.commands.options import add_override_argument
from zoo.config import loader
from zoo.data import host
from zoo.data.errors import UserError
from zoo.distributed import machine
from zoo.export import assembly, low_precision, proof
from zoo.models import initializers, load_spec
from zoo.predict.predictors import find_predictor
from zoo.program import count, positive
from zoo.run import exported, trained
from zoo.run.checkpoint import save_checkpoint
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.table import table
from zoo.trainer import load_backend, load_onnx_backend
from zoo.trainer.state import STATISTICS
from zoo.trainer.world import Launch

CLASSES = {  # recipe -> classes of its data set; identities belong to a matrix that is not exported
    "tsm_k400": 400,
    "resnet50_imagenet": 1000,
    "deeplabv3plus_cityscapes": 19,
    "arcface_ms1m": 0,
}
COUNT, SECONDS, BATCH = 100, 60.0, 4
ROUND = 3  # calls of each contender with several samples
BLOCK = 5  # calls of a turn that count
HEADER = (
    *("model, input", "computed by", "file, MB", "latency p50, ms", "p99, ms", "of PyTorch's p50", "CPU time, ms"),
    *("of PyTorch's", "samples/s", "of PyTorch's"),
)
Forward = Callable[[np.ndarray], np.ndarray]  # of pixels, uint8 (N, ..., 3)


class Sized(NamedTuple):
    """A model at the size of its recipe, with initial weights."""

    checkpoint: trained.Trained
    shape: tuple[int, ...]  # of a sample, channels last
    parameters: int  # of the graph; without those that only training uses
    flops: int  # operations of a sample, 2 per multiply-add (zoo.models.flops)


class Calls(NamedTuple):
    """Timed calls of a contender with `samples` samples each."""

    samples: int
    seconds: list[Seconds]

    def percentile(self, percent: float) -> float:
        """Return the seconds that so many percent of the calls do not exceed."""
        return float(np.percentile([call.wall for call in self.seconds], percent, method="higher"))

    @property
    def cpu_per_sample(self) -> float:
        return sum(call.cpu for call in self.seconds) / (len(self.seconds) * self.samples)

    @property
    def samples_per_s(self) -> float:
        """Samples per second in the median call."""
        return self.samples / float(np.median([call.wall for call in self.seconds]))

    def as_json(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "seconds": [call.wall for call in self.seconds],
            "cpu_seconds": [call.cpu for call in self.seconds],
        }


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    require_new(arguments.json, "--json")
    names = arguments.models.split(",")
    for name in names:
        if name not in CLASSES:
            raise UserError(f"--models: there is no {name!r}; choose from {', '.join(CLASSES)}")
    use_threads(arguments.threads)
    measured = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            sized = build(name, arguments.override, folder, CLASSES[name])
            measured.append({"recipe": name, **measure_model(sized, arguments, folder)})
    description = describe_machine()
    rows = [row for model in measured for row in cells(model)]
    lines = [*table(rows, HEADER, markdown=True), "", f"samples/s with {arguments.batch} samples; {description}"]
    print_report(lines, {"machine": description, "models": measured}, arguments.json)
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, "example: %(prog)s --models resnet50_imagenet --threads 2")
    add = parser.add_argument
    models = "recipes whose models are timed, with initial weights; default %(default)s"
    add("--models", metavar="RECIPE,...", default=",".join(CLASSES), help=models)
    add("--batch", type=count, default=BATCH, metavar="N", help="samples of calls for throughput; default %(default)s")
    add_timing_arguments(parser, COUNT, SECONDS)
    add_override_argument(parser, "change one key of the recipes, such as -o model.width=8; repeatable")
    return parser


def add_timing_arguments(parser: argparse.ArgumentParser, calls: int, seconds: float) -> None:
    """Add the options that `deploy` and `stream` share."""
    add = parser.add_argument
    add("-n", "--count", type=count, default=calls, metavar="N", help="calls of each that count; default %(default)s")
    add("--seconds", type=positive, default=seconds, metavar="S", help="limit of them all; default %(default)g")
    add("--threads", type=count, metavar="N", help="default OMP_NUM_THREADS, or the cores of this process")
    add_json_argument(parser)


def use_threads(number: int | None) -> None:
    """Set the threads of PyTorch and ONNX Runtime, and load both."""
    os.environ["OMP_NUM_THREADS"] = str(number or os.environ.get("OMP_NUM_THREADS") or len(host.cores()))
    load_backend("torch")
    load_onnx_backend()


def describe_machine() -> str:
    """Return threads, processor and load of the machine."""
    return (
        f"{os.environ['OMP_NUM_THREADS']} threads, {machine.cpu_name()}; the load of the machine was "
        f"{os.getloadavg()[0]:.1f} at the end"
    )


def time_calls(contenders: Mapping[str, Forward], pixels: np.ndarray, number: int, limit: float) -> dict[str, Calls]:
    """Call every contender on the same pixels, in turns.

    A turn begins with a call that does not count, because the caches hold another contender's numbers, and another's
    threads may still wait for work. The number of calls is rounded up to whole turns; after `limit` seconds, no pass
    begins.
    """
    calls = {name: lambda forward=forward: forward(pixels) for name, forward in contenders.items()}
    block = min(BLOCK, number)
    times = interleave(calls, -(-number // block), block=block, prepare=lambda name: calls[name](), limit=limit)
    return {name: Calls(len(pixels), seconds) for name, seconds in times.items()}


def measure_model(sized: Sized, arguments: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Time a model in PyTorch and exported; return what was measured, of JSON's types."""
    checkpoint = sized.checkpoint
    trainer, name = proof.load_trainer(checkpoint), checkpoint.fields[0].name
    forwards: dict[str, Forward] = {"PyTorch": lambda pixels: trainer.predict(trainer.to_device({name: pixels}))}
    sizes = {"PyTorch": os.path.getsize(checkpoint.file)}
    for precision in ("fp32", "int8"):
        path = export(sized, precision, os.path.join(folder, f"{precision}.onnx"))
        forwards[f"ONNX Runtime {precision}"] = run_exported(checkpoint, path).forward
        sizes[f"ONNX Runtime {precision}"] = os.path.getsize(path)
    pixels = np.random.default_rng(0).integers(0, 256, (arguments.batch, *sized.shape), np.uint8)
    one = time_calls(forwards, pixels[:1], arguments.count, arguments.seconds)
    many = time_calls(forwards, pixels, ROUND, arguments.seconds) if arguments.batch > 1 else one
    rows = [
        {
            "name": name,
            "size": sizes[name],
            "latency": [one[name].percentile(percent) for percent in (50, 99)],
            "cpu": one[name].cpu_per_sample,
            "samples_per_s": many[name].samples_per_s,
            "one": one[name].as_json(),
            "many": many[name].as_json(),
        }
        for name in forwards
    ]
    return {"shape": sized.shape, "parameters": sized.parameters, "flops": sized.flops, "rows": rows}


def run_exported(checkpoint: trained.Trained, path: str) -> Any:
    world = load_onnx_backend().start(Launch(), "cpu")
    return exported.build(path, checkpoint.cfg, checkpoint.model, checkpoint.arch, checkpoint.fields, world)[1]


def build(recipe: str, overrides: Sequence[str], folder: str, classes: int) -> Sized:
    """Write the checkpoint of a recipe with initial weights to a folder."""
    request = resolve_recipe(Options(f"configs/{recipe}.yaml", overrides, device="cpu"))
    cfg, model = request.config, request.resolved["model.name"].value
    spec = load_spec(model)
    fields = find_predictor(cfg.task.task, request.resolved["data.name"].value).fields(cfg.data)
    arch = trained.resolve(spec, cfg.model, fields, classes)
    tensors = {
        name: initializers.initialize(spec.initializer(arch, name, shape), cfg.seed, name, shape)
        for name, shape in spec.shapes(arch).items()
    }
    names = [f"class {number}" for number in range(classes)]
    record = {"classes": names, "recipe": loader.render(request.resolved)}
    path = save_checkpoint(os.path.join(folder, recipe), 0, tensors, record, 1)
    checkpoint = trained.read(path, "torch", "cpu", (), False)
    predicts = replace(arch, auxiliary=False) if hasattr(arch, "auxiliary") else arch
    parameters = sum(
        math.prod(size)
        for name, size in spec.shapes(predicts).items()
        if name not in spec.SHARDED_PARAMETERS and not name.endswith(STATISTICS)
    )
    return Sized(checkpoint, fields[0].shape, parameters, spec.flops(predicts, fields[0].shape))


def export(sized: Sized, precision: str, path: str) -> str:
    """Write the graph of a model, fp32 or int8; return its path.

    An int8 graph is calibrated with random numbers: how long it takes does not depend on the ranges.
    """
    checkpoint, shape = sized.checkpoint, sized.shape
    model = assembly.build(checkpoint, shape, False, folded=precision == "int8")
    if precision == "int8":
        channels_first = (*shape[:-3], shape[-1], *shape[-3:-1])
        pixels = np.random.default_rng(0).standard_normal((1, *channels_first), np.float32)
        model = low_precision.to_int8(model, [pixels])
    return write_graph(checkpoint, model, shape, path, precision=precision)


def write_graph(checkpoint: trained.Trained, model: Any, shape: tuple[int, ...], path: str, **facts: Any) -> str:
    """Write a graph with its description; return its path. facts: `precision`, and `states` of a stream."""
    facts = dict(protocol="", opset=model.opset_import[0].version, max_difference=0.0, **facts)
    assembly.attach(model, assembly.describe(checkpoint, shape, False, **facts))
    with open(path, "xb") as file:
        file.write(model.SerializeToString())
    return path


def cells(model: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of a model in the table; the first contender is what the others are compared with."""
    size = " x ".join(map(str, model["shape"][:-1]))
    subject = (
        f"{model['recipe']}, {size}: {model['parameters'] / 1e6:.1f} M parameters, {model['flops'] / 1e9:.1f} GFLOPs"
    )
    base = model["rows"][0]
    rows: list[list[str]] = []
    for row in model["rows"]:
        (p50, p99), base_p50 = row["latency"], base["latency"][0]
        rows.append(
            [
                "" if rows else subject,
                row["name"],
                f"{row['size'] / 1e6:.1f}",
                f"{1e3 * p50:.1f}",
                f"{1e3 * p99:.1f}",
                f"{p50 / base_p50:.2f}",
                f"{1e3 * row['cpu']:.1f}",
                f"{row['cpu'] / base['cpu']:.2f}",
                f"{row['samples_per_s']:.3g}",
                f"{row['samples_per_s'] / base['samples_per_s']:.2f}",
            ]
        )
    return rows
