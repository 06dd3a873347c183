"""Estimate the memory of each process of a recipe, and the bytes that an update sends, before anything is started."""

import importlib
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo import data, program
from zoo.bench.options import Cluster, cluster
from zoo.bench.report import accelerators
from zoo.bench.report.results import BACKWARD
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.commands.options import add_recipe_arguments
from zoo.config.schema import Config
from zoo.data.batch import Field
from zoo.data.datasets import synthetic
from zoo.data.errors import UserError
from zoo.models import Spec, load_spec, resolve_arch
from zoo.program import count
from zoo.run import schedule
from zoo.run.pipeline import SPARE
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options, Request
from zoo.table import table
from zoo.trainer import sharding
from zoo.trainer.margin import CHUNK_ELEMENTS
from zoo.trainer.state import STATISTICS

EPILOG = """\
Weights, momentum (or other slots of the optimizer), moving average (train.ema) and gradients are exact. `passes` is
what a forward and backward pass of this model adds at its peak in PyTorch: activations and temporary tensors beside the
gradients that exist by then. It is found without computing anything, where PyTorch is installed; the other frameworks
keep about as much. The class matrix of a face model is split over the processes: only its rows count, and the logits of
the whole global batch with them; with task.sample_rate below 1 the rows that an update uses are counted in addition.
`program` is what a run with a tiny model needs: Python, the framework and what it loads, compiles and keeps for itself;
measured at once on the CPU with one process or two, which takes some seconds, half a minute in MindSpore. With --on it
is left out: on a GPU, the driver's context and the workspaces of cuDNN come on top, which are not known beforehand.

No data are needed: where data.root is not there, the sizes of the published data sets count, or those of --classes and
--samples.

examples
  %(prog)s -c arcface_ms1m --processes 8
  %(prog)s -c resnet50_imagenet --amp --on "A100 40GB"
  %(prog)s -c arcface_glint360k --classes 10000000 --processes 4x8 --on H100"""
FP32_SIZE, HALF_SIZE = 4, 2  # bytes
MIB, GIB = 2**20, 2**30
KINDS = {  # name of a data set -> data.kind of synthetic data of the same shape
    **dict.fromkeys(("imagenet", "shapes"), "image"),
    **dict.fromkeys(("kinetics", "motion"), "clip"),
    **dict.fromkeys(("cityscapes", "streets"), "scene"),
    **dict.fromkeys(("faces", "portraits"), "face"),
}
CLASSES = {  # last part of data.root in the shipped recipes -> number of classes
    "k400": 400,
    "ssv2": 174,
    "imagenet": 1000,
    "cityscapes": 19,
    "ms1m": 85742,
    "glint360k": 360232,
    "motion": 8,
    "shapes": 8,
    "streets": 19,
}
SHAPE_KEYS = ("size", "segments", "crop", "base_size")
# Matrices of the size of the logits that live at once, and of the rows that an update uses, beside their gradient.
# Read off the trainers, and measured.
LOGITS_COPIES = {"torch": 1, "paddle": 1, "mindspore": 4, "jax": 1}
SAMPLED_ROWS_COPIES = 4  # where Partial FC samples them
ALL_ROWS_COPIES = {"torch": 0, "paddle": 0, "mindspore": 2, "jax": 0}  # where it uses all: products of the gradient
RECOMPUTED = 4  # as BACKWARD, where activations are computed again
FULL = 0.9  # share of the memory above which a run probably fails: the driver and the libraries take some
TINY_RUN = (
    *("model.variant=insightface", "model.depth=18", "model.width=8", "model.embedding=8", "data.size=16"),
    *("data.num_classes=10", "data.val_samples=10", "data.workers=0", "train.batch=4", "train.global_batch=4"),
    *("train.eval_batch=10", "train.steps=2"),
)
# Measures the peak memory, in bytes, of a command alone: a process of its own has no other children.
MEASURE = """\
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit)
raise SystemExit(code)"""


class Described(NamedTuple):
    fields: Sequence[Field]  # fields of a training sample; the model's input first
    classes: int  # number of classes
    samples: int | None  # samples per epoch; None if not known
    origin: str  # source of these numbers, in words


class Row(NamedTuple):
    """A line of a table, with a size in bytes."""

    name: str
    size: int
    remark: str = ""


class Estimate(NamedTuple):
    head: list[str]  # lines that describe the run
    memory: list[Row]  # rows of the process that needs most, its program left out
    messages: list[Row]  # rows of what each process sends and receives in an update
    compute: str  # type of the numbers
    flops: int  # operations of an update of a process
    samples: int  # per update and process
    epoch: int | None  # training samples of an epoch; None if not known


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    size = arguments.processes.size
    if arguments.on:
        device_memory(arguments.on)  # before anything that takes time
    require_new(arguments.json, "--json")
    request = resolve_recipe(
        Options(arguments.config, arguments.override, amp=arguments.amp, framework=arguments.framework)
    )
    estimate = compute(request, size, arguments.classes, arguments.samples)
    framework, memory = request.config.framework, estimate.memory
    if not arguments.on:
        remark = f"Python and {framework}, with next to no tensors"
        memory = [Row("program", measure_program(framework, min(size, 2)), remark), *memory]
    lines = [
        *estimate.head,
        f"memory of the process that needs most, with {framework}",
        *_table(memory, "at its peak"),
        "messages from and to each process in an update",
        *_table(estimate.messages, "in all"),
    ]
    if arguments.on:
        lines += on_device(arguments.on, estimate, size, request.config.train.tf32)
    report = {
        "memory": [row._asdict() for row in memory],
        "messages": [row._asdict() for row in estimate.messages],
        **{key: getattr(estimate, key) for key in ("compute", "flops", "samples", "epoch")},
    }
    print_report(lines, report, arguments.json)
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add_recipe_arguments(parser, ("amp", "framework"))
    add = parser.add_argument
    add("--processes", type=cluster, metavar="HOSTSxPROCESSES", default=Cluster(1, 1), help="default 1")
    add(
        "--on", metavar="DEVICE", help="accelerator of each process, such as H100 or 'A100 40GB': does it fit, how fast"
    )
    add("--classes", type=count, metavar="N", help="number of classes; default: of the data, or of the published set")
    add("--samples", type=count, metavar="N", help="training samples of an epoch, likewise")
    add_json_argument(parser)
    return parser


def describe(cfg: Config, name: str, classes: int | None = None, samples: int | None = None) -> Described:
    """Return shape and size of a recipe's data where they are, else those of the published set.

    Args:
        classes, samples: their numbers, None for those of the data.
    """
    root = getattr(cfg.data, "root", None)
    if root is None or os.path.isdir(root):
        train_set, _ = data.find(name).load(cfg.data)
        number, length = classes or len(train_set.classes), samples or len(train_set)
        return Described(train_set.fields, number, length, f"the data set {name}")
    base = os.path.basename(os.path.normpath(root))
    found = classes or CLASSES.get(base) or getattr(cfg.data, "identities", None)  # of generated faces
    if name not in KINDS:
        raise UserError(
            f"data.root: {root} is not there, and samples of {name} are known by the files alone; give data.root of "
            "some, or estimate a recipe on other data"
        )
    if found is None:
        raise UserError(f"data.root: {root} is not there, and its number of classes is not known; give --classes N")
    keys = {key: getattr(cfg.data, key, None) for key in SHAPE_KEYS if key in synthetic.KEYS[KINDS[name]]}
    settings: Any = synthetic.Settings(kind=KINDS[name], num_classes=found, **keys)  # type: ignore[arg-type]
    train_set, _ = synthetic.load(settings)
    epoch = samples or (cfg.upstream.train_samples if cfg.upstream else None)
    return Described(train_set.fields, found, epoch, f"sizes of the set {base}, since {root} is not there")


def is_trained(spec: Spec, arch: Any, name: str) -> bool:
    """Return whether a tensor is a parameter that the recipe does not freeze."""
    return not name.endswith(STATISTICS) and spec.lr_and_decay_scale(arch, name)[0] != 0


def bytes_of(shapes: Mapping[str, Sequence[int]]) -> int:
    """Return the size of fp32 tensors in bytes."""
    return FP32_SIZE * sum(math.prod(shape) for shape in shapes.values())


def largest_share(shapes: Mapping[str, Sequence[int]], world_size: int) -> int:
    """Return the most bytes that a process holds of fp32 tensors that are divided as train.shard_optimizer does."""
    ranks = sharding.partition({name: math.prod(shape) for name, shape in shapes.items()}, world_size)
    return max(bytes_of({name: shapes[name] for name in shapes if ranks[name] == rank}) for rank in range(world_size))


def compute(request: Request, world_size: int, classes: int | None = None, samples: int | None = None) -> Estimate:
    """Estimate a run of so many processes; classes, samples: those of an epoch, None for those of the data."""
    cfg, model = request.config, request.resolved["model.name"].value
    plan, train = schedule.batch_plan(cfg.train, world_size), cfg.train
    if train.precision in ("fp64", "exact"):
        raise UserError("train.precision: estimates are of fp32 and 16 bits; leave --exact or the key out")
    found = describe(cfg, request.resolved["data.name"].value, classes, samples)
    spec = load_spec(model)
    arch = resolve_arch(spec, cfg.model, found.fields, found.classes)
    shapes = spec.shapes(arch)
    replicated = {name: shape for name, shape in shapes.items() if name not in spec.SHARDED_PARAMETERS}
    trained_shapes = {name: shape for name, shape in replicated.items() if is_trained(spec, arch, name)}
    trained, is_divided = bytes_of(trained_shapes), train.shard_optimizer and world_size > 1
    held = largest_share(trained_shapes, world_size) if is_divided else trained
    is_half, checkpoints = train.precision != "fp32", train.checkpoint_activations
    in_mindspore = is_half and cfg.framework == "mindspore"  # on a GPU; see zoo/trainer/mindspore/model.py
    passes = Row("passes", 0, "unknown: PyTorch, which they are simulated with, is not installed")
    if importlib.util.find_spec("torch"):
        size = importlib.import_module("zoo.bench.passes").peak(
            *(model, arch, found.fields, plan.batch, cfg.task),
            is_half=is_half,
            fp32_norms=in_mindspore and train.amp_level in ("O1", "O2"),
            fp32_dilated=in_mindspore,
            checkpointed=checkpoints,
        )
        # beside gradients that exist all at once
        passes = Row("passes", max(0, size - trained), f"activations of {plan.batch} samples and temporary tensors")
    waiting = 2 * plan.accumulate + SPARE + 1
    of_sample = sum(math.prod(field.shape) * np.dtype(field.dtype).itemsize for field in found.fields)
    memory = [
        Row("weights", bytes_of(replicated)),
        *(Row(slot, held, "the largest share of a process" if is_divided else "") for slot in cfg.optim.slots),
        *([] if train.ema is None else [Row("moving average", bytes_of(replicated))]),
        Row("gradients", trained),
        passes,
        Row("batches", waiting * plan.batch * of_sample, f"{waiting} of them, read ahead"),
    ]
    messages = []
    if world_size > 1:
        messages.append(Row("gradients", trained // (2 if train.fp16_allreduce else 1), "summed over processes"))
    global_batch = plan.batch * plan.ranks  # without micro-batches
    for name in spec.SHARDED_PARAMETERS:
        memory += sharded_memory(name, shapes[name], cfg, world_size, global_batch, plan.accumulate)
        if world_size > 1:
            numbers = global_batch * plan.accumulate * FP32_SIZE
            messages.append(Row("embeddings", numbers * shapes[name][1], "gathered"))
            messages.append(Row("their gradient", numbers * shapes[name][1], "summed"))
            messages.append(Row("maxima, sums, targets", 3 * numbers))
    precision = ("16 bits" if is_half else "fp32") + (", activations computed again" if checkpoints else "")
    per_update = plan.batch * plan.accumulate
    forward = spec.flops(arch, found.fields[0].shape) * per_update
    length = f", {found.samples:,} training samples" if found.samples else ""
    return Estimate(
        [
            f"{world_size} process(es), {schedule.describe(plan, cfg.optim)}; {precision}",
            f"{found.origin}: {found.classes:,} classes{length}",
        ],
        memory,
        messages,
        {"amp": "fp16"}.get(train.precision, train.precision),
        (RECOMPUTED if checkpoints else BACKWARD) * forward,
        per_update,
        found.samples,
    )


def sharded_memory(
    name: str, shape: Sequence[int], cfg: Config, world_size: int, samples: int, accumulate: int
) -> list[Row]:
    """List the memory of a parameter (rows, width) whose rows are split over the processes.

    Args:
        accumulate: micro-batches per update.
    """
    rows, width = shape
    first, last = sharding.row_range(rows, 0, world_size)
    held = used = last - first
    rate = getattr(cfg.task, "sample_rate", 1.0)
    if rate < 1:
        used = sharding.num_active_rows(held, rate, samples * accumulate)
    at_once = min(used, max(1, CHUNK_ELEMENTS // samples))  # rows whose logits are there together
    slots = [*cfg.optim.slots, *([] if cfg.train.ema is None else ["average"])]
    size, logits = held * width * FP32_SIZE, samples * at_once * FP32_SIZE
    found = [
        Row(name, size, f"{held:,} of {rows:,} rows"),
        *(Row(f"{name}, {slot}", size) for slot in slots),
        Row(f"{name}, gradient", used * width * FP32_SIZE, f"of {used:,} rows"),
        Row("logits", LOGITS_COPIES[cfg.framework] * logits, f"{samples:,} samples x {at_once:,} rows"),
    ]
    copies = SAMPLED_ROWS_COPIES if rate < 1 else ALL_ROWS_COPIES[cfg.framework]
    if copies:
        found.append(Row(f"{name}, rows used", copies * used * width * FP32_SIZE, "copies during the update"))
    if cfg.train.precision != "fp32":
        found.append(Row(f"{name}, 16 bits", at_once * width * (FP32_SIZE + HALF_SIZE), "normalized rows for products"))
    return found


def measure_program(framework: str, processes: int) -> int:
    """Return the peak memory, in bytes, of the process that takes most of a run whose model and batch are tiny."""
    with tempfile.TemporaryDirectory() as folder:
        command = program.command("launch", f"1x{processes}", "--logs", f"{folder}/logs", "--out", f"{folder}/run")
        command += ["-c", "arcface_synthetic", "--framework", framework, "--device", "cpu"]
        command += [word for setting in TINY_RUN for word in ("-o", setting)]
        measure = [sys.executable, "-c", MEASURE, *command]
        done = subprocess.run(measure, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr)[-2000:]
        raise UserError(f"a tiny run in {framework} failed, so its memory is unknown:\n{output}")
    return int(done.stdout.split()[-1])


def device_memory(name: str) -> int:
    size = accelerators.memory(name)
    if size is None:
        raise UserError(
            f"--on {name}: not known, or not sold with this memory; examples: H100, 'A100 40GB', 'V100 32GB', T4 "
            "(zoo/bench/report/accelerators.py has all of them)"
        )
    return size * GIB


def on_device(name: str, estimate: Estimate, devices: int, is_tf32: bool) -> list[str]:
    """Return lines on whether a process fits on an accelerator, and how fast it is at most."""
    memory, size = sum(row.size for row in estimate.memory), device_memory(name)
    share = memory / size
    fits = "it fits" if share <= FULL else "it probably does not fit" if share <= 1 else "it does not fit"
    lines = [f"on {name}: {memory / GIB:.1f} of {size / GIB:.0f} GiB, {share:.0%}: {fits}"]
    peak = accelerators.peak(name, estimate.compute, is_tf32)
    text = f"  an update of {estimate.samples} samples is {estimate.flops / 1e12:.2f} TFLOP"
    if peak is None:
        return [*lines, f"{text}; the peak in {estimate.compute} is not known"]
    seconds = estimate.flops / peak.flops
    lines.append(
        f"{text}: at least {1000 * seconds:.1f} ms at the peak in {peak.source} ({peak.flops / 1e12:g} TFLOP/s), "
        f"{estimate.samples / seconds:,.0f} samples/s"
    )
    if estimate.epoch:
        minutes = estimate.epoch / (estimate.samples * devices) * seconds / 60
        lines.append(
            f"  an epoch of {estimate.epoch:,} samples: at least {minutes:.3g} min; runs reach a part of the peak"
        )
    return lines


def _table(rows: Sequence[Row], total: str) -> list[str]:
    rows = [*rows, Row(total, sum(row.size for row in rows))]
    cells = [(row.name, f"{row.size / MIB:.1f}", row.remark) for row in rows]
    return [f"  {line}" for line in table(cells, ("", "MiB", ""))]
