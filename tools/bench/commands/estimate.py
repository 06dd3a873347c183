"""Estimate the memory of each process of a recipe, and what an update sends, before anything is started."""

import argparse
import importlib.util
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.bench.estimate import described, devices, simulation
from zoo.bench.estimate.devices import Work
from zoo.bench.estimate.simulation import Passes
from zoo.data.batch import Field
from zoo.data.errors import UserError
from zoo.models import Spec, load_spec, resolve_arch
from zoo.run import cli, schedule
from zoo.run.pipeline import SPARE
from zoo.tasks import load_task
from zoo.trainer import sharding

EPILOG = """\
weights, momentum (or other slots of the optimizer), moving average (train.ema) and gradients are exact. `passes` is
what a forward and backward pass of this model adds at its peak in PyTorch: activations and temporary tensors beside the
gradients that exist by then. It is found without computing anything, where PyTorch is installed; the other frameworks
keep about as much. With 16 bits they are counted in 16 bits, with train.checkpoint_activations what is kept then. The
class matrix of a face model is split over the processes: only its rows count, and the logits of the whole global batch
with them; with task.sample_rate below 1 the rows that an update uses are counted in addition.
`program` is what a run with a tiny model needs: Python, the framework and what it loads, compiles and keeps for itself;
measured at once on the CPU with one process or two, which takes some seconds, half a minute in MindSpore. With --on it
is left out: on a GPU, the driver's context and the workspaces of cuDNN come on top, which are not known beforehand.

No data are needed: where data.root is not there, the sizes of the published data sets count, or those of --classes and
--samples.

examples
  python tools/estimate.py -c configs/arcface_ms1m.yaml --world 8
  python tools/estimate.py -c configs/resnet50_imagenet.yaml --amp --on "A100 40GB"
  python tools/estimate.py -c configs/resnet50_imagenet.yaml --amp --on T4 -o train.checkpoint_activations=true
  python tools/estimate.py -c configs/arcface_glint360k.yaml --classes 10000000 --world 8 --on H100"""
FP32_SIZE, HALF_SIZE = 4, 2  # bytes
# CHUNK_ELEMENTS of zoo/trainer/<framework>/margin.py, which computes logits in parts and products in 16 bits; None
# where there are no such parts.
LOGITS_AT_ONCE: dict[str, int | None] = {"torch": 1 << 28, "paddle": 1 << 28, "mindspore": 1 << 28}
# Matrices of the size of the logits that live at once, and of the rows that an update uses, beside their gradient.
# Read off zoo/trainer/<framework>/margin.py and shard.py, and measured.
LOGITS_COPIES = {"torch": 1, "paddle": 1, "mindspore": 4}
SAMPLED_ROWS_COPIES = {"torch": 4, "paddle": 4, "mindspore": 4}  # where Partial FC samples them
ALL_ROWS_COPIES = {"torch": 0, "paddle": 0, "mindspore": 2}  # where an update uses all: products of the gradient
TINY_RECIPE = "configs/arcface_synthetic.yaml"  # found among the shipped recipes from any folder
TINY_RUN = [
    "model.variant=insightface",
    "model.depth=18",
    "model.width=8",
    "model.embedding=8",
    "data.size=16",
    "data.num_classes=10",
    "data.val_samples=10",
    "data.workers=0",
    "train.batch=4",
    "train.global_batch=4",
    "train.eval_batch=10",
    "train.steps=2",
]
# Measures the peak memory of a command alone: a process of its own has no other children.
MEASURE = """\
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
raise SystemExit(code)"""


class Row(NamedTuple):
    """A line of a table. size: in bytes."""

    name: str
    size: int
    remark: str = ""


class Sharding(NamedTuple):
    """What the rows of a split parameter depend on.

    Attributes:
        framework: name of the framework.
        samples: of a micro-batch over all processes.
        accumulate: micro-batches per update.
        world_size: number of processes.
        sample_rate: share of the rows that an update uses.
        is_half: whether products are computed in 16 bits.
        slots: tensors beside each split parameter: of the optimizer, and its moving average.
    """

    framework: str
    samples: int
    accumulate: int
    world_size: int
    sample_rate: float
    is_half: bool
    slots: tuple[str, ...]


class Estimate(NamedTuple):
    """An estimate.

    Attributes:
        head: a line that describes the run.
        memory: of the process that needs most, its program left out.
        messages: from and to each process in an update.
        work: what a device has to compute.
    """

    head: str
    memory: list[Row]
    messages: list[Row]
    work: Work


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_recipe_arguments(parser, ("amp", "framework"))
    add = parser.add_argument
    add("--world", type=int, metavar="N", default=1, help="number of processes; default 1")
    add(
        "--on", metavar="DEVICE", help="accelerator of each process, such as H100 or 'A100 40GB': does it fit, how fast"
    )
    add("--classes", type=int, metavar="N", help="number of classes; default: of the data, or of the published set")
    add("--samples", type=int, metavar="N", help="training samples of an epoch, likewise")
    arguments = parser.parse_args(argv)
    try:
        for key in ("world", "classes", "samples"):
            value = getattr(arguments, key)
            if value is not None and value < 1:
                raise UserError(f"--{key}: must be at least 1")
        if arguments.on:
            devices.find(arguments.on)  # before anything that takes time
        request = cli.request(arguments.config, arguments.override, amp=arguments.amp, framework=arguments.framework)
        estimate = compute(request, arguments.world, arguments.classes, arguments.samples)
        framework, memory = request.config.framework, estimate.memory
        if not arguments.on:
            memory = [program_row(framework, arguments.world), *memory]
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(estimate.head)
    print(format_table(f"memory of the process that needs most, with {framework}", memory, "at its peak"))
    print(format_table("messages from and to each process in an update", estimate.messages, "in all"))
    if arguments.on:
        print("\n".join(devices.describe(arguments.on, sum(row.size for row in memory), estimate.work)))
    return 0


def compute(request: cli.Request, world_size: int, classes: int | None = None, samples: int | None = None) -> Estimate:
    """Estimate a run.

    Args:
        request: its recipe.
        world_size: number of processes.
        classes: number of classes, None for that of the data.
        samples: number of training samples, likewise.

    Raises:
        UserError: the size of the data is not known, the recipe contradicts them, or it computes in fp64.
    """
    cfg, model = request.config, request.resolved["model.name"].value
    batch_plan = schedule.batch_plan(cfg.train, world_size)
    if cfg.train.precision in ("fp64", "exact"):
        raise UserError("train.precision: estimates are of fp32 and 16 bits; leave --exact or the key out")
    found = described.describe(cfg, request.resolved["data.name"].value, classes, samples)
    spec = load_spec(model)
    arch = resolve_arch(spec, cfg.model, found.fields, found.classes)
    sharded = {name: shape for name, shape in spec.shapes(arch).items() if name in spec.SHARDED_PARAMETERS}
    replicated = {name: shape for name, shape in spec.shapes(arch).items() if name not in sharded}
    trained_shapes = {name: shape for name, shape in replicated.items() if is_trained(spec, arch, name)}
    trained = bytes_of(trained_shapes)
    is_divided = cfg.train.shard_optimizer and world_size > 1
    held = largest_share(trained_shapes, world_size) if is_divided else trained
    is_half, checkpoints = cfg.train.precision != "fp32", cfg.train.checkpoint_activations

    passes = Passes(
        model=model,
        arch=arch,
        dropout_masks=spec.dropout_masks(arch),
        fields=found.fields,
        batch=batch_plan.batch,
        is_half=is_half,
        checkpointed=spec.checkpointed_modules(arch) if checkpoints else (),
        task=load_task(spec.TASK),
        settings=cfg.task,
    )
    has_average = cfg.train.ema is not None
    waiting = 2 * batch_plan.accumulate + SPARE + 1
    memory = [
        Row("weights", bytes_of(replicated)),
        *(Row(slot, held, "the largest share of a process" if is_divided else "") for slot in cfg.optim.slots),
        *([Row("moving average", bytes_of(replicated))] if has_average else []),
        Row("gradients", trained),
        passes_row(passes, trained),
        Row("batches", waiting * batch_plan.batch * bytes_of_sample(found.fields), f"{waiting} of them, read ahead"),
    ]
    messages = []
    if world_size > 1:
        messages.append(Row("gradients", trained // (2 if cfg.train.fp16_allreduce else 1), "summed over processes"))
    setting = Sharding(
        cfg.framework,
        batch_plan.batch * batch_plan.ranks,
        batch_plan.accumulate,
        world_size,
        getattr(cfg.task, "sample_rate", 1.0),
        is_half,
        (*cfg.optim.slots, *(["average"] if has_average else [])),
    )
    for name, (rows, width) in sharded.items():
        memory += sharded_memory(name, rows, width, setting)
        if world_size > 1:
            messages += sharded_messages(width, setting)
    precision = ("16 bits" if is_half else "fp32") + (", activations computed again" if checkpoints else "")
    head = f"{world_size} process(es), {schedule.describe(batch_plan, cfg.optim)}; {precision}\n{found.origin}: "
    head += f"{found.classes:,} classes" + (f", {found.samples:,} training samples" if found.samples else "")
    compute_type = {"amp": "fp16"}.get(cfg.train.precision, cfg.train.precision)
    flops = spec.flops(arch, found.fields[0].shape)
    work = Work(
        compute_type, cfg.train.tf32, flops, checkpoints, batch_plan.batch * batch_plan.accumulate, world_size,
        found.samples,
    )  # fmt: skip
    return Estimate(head, memory, messages, work)


def is_trained(spec: Spec, arch: Any, name: str) -> bool:
    """Return whether a tensor is a parameter that the recipe does not freeze."""
    is_statistic = name.endswith((".running_mean", ".running_var"))
    return not is_statistic and spec.lr_and_decay_scale(arch, name)[0] != 0


def bytes_of(shapes: Mapping[str, Sequence[int]]) -> int:
    """Return the size of fp32 tensors in bytes."""
    return FP32_SIZE * sum(math.prod(shape) for shape in shapes.values())


def largest_share(shapes: Mapping[str, Sequence[int]], world_size: int) -> int:
    """Return the most bytes that a process holds of fp32 tensors that are divided as train.shard_optimizer does."""
    ranks = sharding.partition({name: math.prod(shape) for name, shape in shapes.items()}, world_size)
    return max(bytes_of({name: shapes[name] for name in shapes if ranks[name] == rank}) for rank in range(world_size))


def bytes_of_sample(fields: Sequence[Field]) -> int:
    """Return the bytes of a training sample, as it is passed to the device."""
    return sum(math.prod(field.shape) * np.dtype(field.dtype).itemsize for field in fields)


def sharded_memory(name: str, count: int, width: int, setting: Sharding) -> list[Row]:
    """List the memory of a parameter (count, width) whose rows are split over the processes."""
    first, last = sharding.row_range(count, 0, setting.world_size)
    held = used = last - first
    if setting.sample_rate < 1:
        used = sharding.num_active_rows(held, setting.sample_rate, setting.samples * setting.accumulate)
    limit = LOGITS_AT_ONCE[setting.framework]
    at_once = min(used, max(1, limit // setting.samples)) if limit else used  # rows whose logits are there together
    size, logits = held * width * FP32_SIZE, setting.samples * at_once * FP32_SIZE
    rows = [
        Row(name, size, f"{held:,} of {count:,} rows"),
        *(Row(f"{name}, {slot}", size) for slot in setting.slots),
        Row(f"{name}, gradient", used * width * FP32_SIZE, f"of {used:,} rows"),
        Row("logits", LOGITS_COPIES[setting.framework] * logits, f"{setting.samples:,} samples x {at_once:,} rows"),
    ]
    copies = (SAMPLED_ROWS_COPIES if setting.sample_rate < 1 else ALL_ROWS_COPIES)[setting.framework]
    if copies:
        rows.append(Row(f"{name}, rows used", copies * used * width * FP32_SIZE, "copies during the update"))
    if setting.is_half and limit:
        rows.append(Row(f"{name}, 16 bits", at_once * width * (FP32_SIZE + HALF_SIZE), "normalized rows for products"))
    return rows


def sharded_messages(width: int, setting: Sharding) -> list[Row]:
    """List the messages for the logits of a parameter whose rows of `width` are split over the processes."""
    numbers = setting.samples * FP32_SIZE * setting.accumulate
    return [
        Row("embeddings", numbers * width, "gathered"),
        Row("their gradient", numbers * width, "summed"),
        Row("maxima, sums, targets", 3 * numbers),
    ]


def program_row(framework: str, world_size: int) -> Row:
    size = measure_program(framework, min(world_size, 2))
    return Row("program", size, f"Python and {framework}, with next to no tensors")


def measure_program(framework: str, processes: int) -> int:
    """Measure a run whose model and batch are tiny.

    Returns:
        The peak memory of the process that takes most, in bytes.

    Raises:
        UserError: the framework is not installed, or the run failed.
    """
    if importlib.util.find_spec(framework) is None:
        raise UserError(f"{framework} is not installed here: pip install '.[{framework}]'")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "zoo.commands.launch", f"1x{processes}", "--logs", f"{folder}/logs"]
        command += ["--out", f"{folder}/run", "-c", TINY_RECIPE, "--framework", framework, "--device", "cpu"]
        command += [word for setting in TINY_RUN for word in ("-o", setting)]
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, cwd=folder, check=False
        )
    if done.returncode:
        raise UserError(
            f"a tiny run in {framework} failed, so its memory is unknown:\n" + (done.stdout + done.stderr)[-2000:]
        )
    return int(done.stdout.split()[-1]) * 1024


def passes_row(passes: Passes, gradients: int) -> Row:
    """Return what a forward and backward pass adds to gradients that exist all at once."""
    size = simulation.peak(passes)
    if size is None:
        return Row("passes", 0, "unknown: PyTorch, which they are simulated with, is not installed")
    return Row("passes", max(0, size - gradients), f"activations of {passes.batch} samples and temporary tensors")


def format_table(title: str, rows: Sequence[Row], total: str) -> str:
    """Format rows as lines in MiB, with their sum last."""
    lines = [title] + [
        f"  {row.name:<24}{row.size / 2**20:>12,.1f} MiB{'  ' + row.remark if row.remark else ''}" for row in rows
    ]
    return "\n".join(lines + [f"  {total:<24}{sum(row.size for row in rows) / 2**20:>12,.1f} MiB"])
