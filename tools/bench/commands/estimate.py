"""Estimate the memory of each process of a recipe, and the bytes that an update sends, before anything is started."""

import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from zoo import program
from zoo.bench.estimate.recipe import (
    FP32_SIZE,
    bytes_of,
    bytes_of_sample,
    describe,
    is_trained,
    largest_share,
)
from zoo.bench.options import Cluster, cluster, count
from zoo.bench.report import accelerators
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.data.errors import UserError
from zoo.models import load_spec, resolve_arch
from zoo.run import cli, schedule
from zoo.run.pipeline import SPARE
from zoo.table import table
from zoo.tasks import load_task
from zoo.trainer import sharding
from zoo.trainer.margin import CHUNK_ELEMENTS

EPILOG = """\
Weights, momentum (or other slots of the optimizer), moving average (train.ema) and gradients are exact. `passes` is
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
  %(prog)s -c arcface_ms1m --processes 8
  %(prog)s -c resnet50_imagenet --amp --on "A100 40GB"
  %(prog)s -c resnet50_imagenet --amp --on T4 -o train.checkpoint_activations=true
  %(prog)s -c arcface_glint360k --classes 10000000 --processes 4x8 --on H100"""
HALF_SIZE, MIB, GIB = 2, 2**20, 2**30  # bytes
# Matrices of the size of the logits that live at once, and of the rows that an update uses, beside their gradient.
# Read off the trainers, and measured.
LOGITS_COPIES = {"torch": 1, "paddle": 1, "mindspore": 4}
SAMPLED_ROWS_COPIES = {"torch": 4, "paddle": 4, "mindspore": 4}  # where Partial FC samples them
ALL_ROWS_COPIES = {"torch": 0, "paddle": 0, "mindspore": 2}  # where an update uses all: products of the gradient
BACKWARD, RECOMPUTED = 3, 4  # operations of an update as multiples of a forward pass
FULL = 0.9  # share of the memory above which a run probably fails: the driver and the libraries take some
TINY_RUN = (
    *("model.variant=insightface", "model.depth=18", "model.width=8", "model.embedding=8", "data.size=16"),
    *("data.num_classes=10", "data.val_samples=10", "data.workers=0", "train.batch=4", "train.global_batch=4"),
    *("train.eval_batch=10", "train.steps=2"),
)
# Measures the peak memory of a command alone: a process of its own has no other children.
MEASURE = """\
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
raise SystemExit(code)"""


class Row(NamedTuple):
    """A line of a table, with a size in bytes."""

    name: str
    size: int
    remark: str = ""


class Sharding(NamedTuple):
    """Facts that the rows of a split parameter depend on.

    Attributes:
        framework: name of the framework.
        samples: size of a micro-batch over all processes.
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
        head: lines that describe the run.
        memory: rows of the process that needs most, its program left out.
        messages: rows of what each process sends and receives in an update.
        compute: type of the numbers.
        flops: operations of an update of a process.
        samples: per update and process.
        epoch: training samples of an epoch; None if not known.
    """

    head: list[str]
    memory: list[Row]
    messages: list[Row]
    compute: str
    flops: int
    samples: int
    epoch: int | None


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = program.parser(__doc__, EPILOG)
    cli.add_recipe_arguments(parser, ("amp", "framework"))
    add = parser.add_argument
    add("--processes", type=cluster, metavar="HOSTSxPROCESSES", default=Cluster(1, 1), help="default 1")
    add(
        "--on", metavar="DEVICE", help="accelerator of each process, such as H100 or 'A100 40GB': does it fit, how fast"
    )
    add("--classes", type=count, metavar="N", help="number of classes; default: of the data, or of the published set")
    add("--samples", type=count, metavar="N", help="training samples of an epoch, likewise")
    add_json_argument(parser)
    arguments = parser.parse_args(argv)
    world_size = arguments.processes.size
    if arguments.on:
        device_memory(arguments.on)  # before anything that takes time
    require_new(arguments.json, "--json")
    request = cli.request(arguments.config, arguments.override, amp=arguments.amp, framework=arguments.framework)
    estimate = compute(request, world_size, arguments.classes, arguments.samples)
    framework, memory = request.config.framework, estimate.memory
    if not arguments.on:
        size = measure_program(framework, min(world_size, 2))
        memory = [Row("program", size, f"Python and {framework}, with next to no tensors"), *memory]
    lines = [
        *estimate.head,
        f"memory of the process that needs most, with {framework}",
        *_table(memory, "at its peak"),
        "messages from and to each process in an update",
        *_table(estimate.messages, "in all"),
    ]
    if arguments.on:
        is_tf32 = request.config.train.tf32
        lines += on_device(arguments.on, sum(row.size for row in memory), estimate, world_size, is_tf32)
    report = {
        "memory": [row._asdict() for row in memory],
        "messages": [row._asdict() for row in estimate.messages],
        **{key: getattr(estimate, key) for key in ("compute", "flops", "samples", "epoch")},
    }
    print_report(lines, report, arguments.json)
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
    found = describe(cfg, request.resolved["data.name"].value, classes, samples)
    spec = load_spec(model)
    arch = resolve_arch(spec, cfg.model, found.fields, found.classes)
    sharded = {name: shape for name, shape in spec.shapes(arch).items() if name in spec.SHARDED_PARAMETERS}
    replicated = {name: shape for name, shape in spec.shapes(arch).items() if name not in sharded}
    trained_shapes = {name: shape for name, shape in replicated.items() if is_trained(spec, arch, name)}
    trained = bytes_of(trained_shapes)
    is_divided = cfg.train.shard_optimizer and world_size > 1
    held = largest_share(trained_shapes, world_size) if is_divided else trained
    is_half, checkpoints = cfg.train.precision != "fp32", cfg.train.checkpoint_activations
    average = ["average"] if cfg.train.ema is not None else []
    waiting = 2 * batch_plan.accumulate + SPARE + 1
    passes = dict(
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
    memory = [
        Row("weights", bytes_of(replicated)),
        *(Row(slot, held, "the largest share of a process" if is_divided else "") for slot in cfg.optim.slots),
        *(Row("moving average", bytes_of(replicated)) for _ in average),
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
        (*cfg.optim.slots, *average),
    )
    for name, (rows, width) in sharded.items():
        memory += sharded_memory(name, rows, width, setting)
        messages += sharded_messages(width, setting) if world_size > 1 else []
    precision = ("16 bits" if is_half else "fp32") + (", activations computed again" if checkpoints else "")
    per_update = batch_plan.batch * batch_plan.accumulate
    forward = spec.flops(arch, found.fields[0].shape) * per_update
    return Estimate(
        [
            f"{world_size} process(es), {schedule.describe(batch_plan, cfg.optim)}; {precision}",
            f"{found.origin}: {found.classes:,} classes"
            + (f", {found.samples:,} training samples" if found.samples else ""),
        ],
        memory,
        messages,
        {"amp": "fp16"}.get(cfg.train.precision, cfg.train.precision),
        (RECOMPUTED if checkpoints else BACKWARD) * forward,
        per_update,
        found.samples,
    )


def passes_row(passes: dict[str, Any], gradients: int) -> Row:
    """Return the memory of a forward and backward pass beside gradients that exist all at once."""
    if importlib.util.find_spec("torch") is None:
        return Row("passes", 0, "unknown: PyTorch, which they are simulated with, is not installed")
    simulation = importlib.import_module("zoo.bench.estimate.torch")
    size = simulation.peak(simulation.Passes(**passes))
    return Row("passes", max(0, size - gradients), f"activations of {passes['batch']} samples and temporary tensors")


def sharded_memory(name: str, count: int, width: int, setting: Sharding) -> list[Row]:
    """List the memory of a parameter (count, width) whose rows are split over the processes."""
    first, last = sharding.row_range(count, 0, setting.world_size)
    held = used = last - first
    if setting.sample_rate < 1:
        used = sharding.num_active_rows(held, setting.sample_rate, setting.samples * setting.accumulate)
    at_once = min(used, max(1, CHUNK_ELEMENTS // setting.samples))  # rows whose logits are there together
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
    if setting.is_half:
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


def measure_program(framework: str, processes: int) -> int:
    """Measure a run whose model and batch are tiny.

    Returns:
        The peak memory of the process that takes most, in bytes.

    Raises:
        UserError: the framework is not installed, or the run failed.
    """
    if importlib.util.find_spec(framework) is None:
        raise UserError(f"{framework} is not installed here: pip install 'vision-zoo[{framework}]'")
    with tempfile.TemporaryDirectory() as folder:
        command = program.command("launch", f"1x{processes}", "--logs", f"{folder}/logs", "--out", f"{folder}/run")
        command += ["-c", "arcface_synthetic", "--framework", framework, "--device", "cpu"]
        command += [word for setting in TINY_RUN for word in ("-o", setting)]
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, cwd=folder, check=False
        )
    if done.returncode:
        raise UserError(
            f"a tiny run in {framework} failed, so its memory is unknown:\n" + (done.stdout + done.stderr)[-2000:]
        )
    return int(done.stdout.split()[-1]) * 1024


def device_memory(name: str) -> int:
    """Return the memory of an accelerator in bytes.

    Raises:
        UserError: it is not known.
    """
    size = accelerators.memory(name)
    if size is None:
        raise UserError(
            f"--on {name}: not known, or not sold with this memory; examples: H100, 'A100 40GB', 'V100 32GB', T4 "
            "(tools/bench/report/accelerators.py has all of them)"
        )
    return size * GIB


def on_device(name: str, memory: int, estimate: Estimate, devices: int, is_tf32: bool) -> list[str]:
    """Return lines on whether a process fits on an accelerator, and how fast it is at most.

    Args:
        name: name of the accelerator.
        memory: bytes of the tensors of a process.
        estimate: estimate of the run.
        devices: number of them.
        is_tf32: whether fp32 may be computed in TF32.
    """
    size = device_memory(name)
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
    """Return the lines of rows in MiB, with their sum last."""
    rows = [*rows, Row(total, sum(row.size for row in rows))]
    return [
        f"  {line}"
        for line in table([(row.name, f"{row.size / MIB:.1f}", row.remark) for row in rows], ("", "MiB", ""))
    ]
