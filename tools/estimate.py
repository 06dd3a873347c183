"""Estimate the memory of each process of a recipe, and what an update sends, before anything is started."""

import argparse
import importlib.util
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import data
from data.batch import DropoutMask, Field
from data.errors import UserError
from zoo.models import Spec, load_model_class, load_spec, resolve_arch
from zoo.run import cli, schedule
from zoo.trainer import sharding

EPILOG = """\
weights, momentum and gradients are exact. activations are what PyTorch keeps for the backward pass of this model, found
without computing anything, where PyTorch is installed; the other frameworks keep about as much. With 16 bits they are
counted in 16 bits. The class matrix of a face model is split over the processes: only its rows count, and the logits of
the whole global batch with them; with task.sample_rate below 1 the rows that an update uses are counted in addition.
`program` is what a run with a tiny model needs: Python, the framework and what it loads, compiles and keeps for itself;
measured at once on the CPU with one process or two, which takes some seconds, half a minute in MindSpore.

For data that are not at hand, such as a million identities: -o data.name=synthetic -o data.kind=face
-o data.num_classes=1000000.

examples
  python tools/estimate.py -c configs/arcface_ms1m.yaml --world 8
  python tools/estimate.py -c configs/resnet50_imagenet.yaml --amp"""
FP32_SIZE = 4  # bytes
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
    """

    framework: str
    samples: int
    accumulate: int
    world_size: int
    sample_rate: float


def cli_main() -> None:
    """Run as the command zoo-estimate."""
    sys.exit(main())


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_recipe_arguments(parser, ("amp", "framework"))
    parser.add_argument("--world", type=int, metavar="N", default=1, help="number of processes; default 1")
    arguments = parser.parse_args(argv)
    try:
        if arguments.world < 1:
            raise UserError("--world: must be at least 1")
        request = cli.request(arguments.config, arguments.override, amp=arguments.amp, framework=arguments.framework)
        memory, messages, head = estimate(request, arguments.world)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(head)
    title = f"memory of the process that needs most, with {request.config.framework}"
    print(format_table(title, memory, "at its peak"))
    print(format_table("messages from and to each process in an update", messages, "in all"))
    return 0


def estimate(request: cli.Request, world_size: int) -> tuple[list[Row], list[Row], str]:
    """Estimate a run.

    Args:
        request: its recipe.
        world_size: number of processes.

    Returns:
        Rows of memory and rows of messages of a process, and a line that describes the run.

    Raises:
        UserError: the data are missing, the recipe contradicts them, or it computes in fp64.
    """
    cfg, model = request.config, request.resolved["model.name"].value
    batch_plan = schedule.batch_plan(cfg.train, world_size)
    train_set, _ = data.find(request.resolved["data.name"].value).load(cfg.data)
    spec = load_spec(model)
    arch = resolve_arch(spec, cfg.model, train_set.fields, len(train_set.classes))
    sharded = {name: shape for name, shape in spec.shapes(arch).items() if name in spec.SHARDED_PARAMETERS}
    replicated = {name: shape for name, shape in spec.shapes(arch).items() if name not in sharded}
    trained = bytes_of({name: shape for name, shape in replicated.items() if is_trained(spec, arch, name)})
    if cfg.train.precision in ("fp64", "exact"):
        raise UserError("train.precision: estimates are of fp32 and 16 bits; leave --exact or the key out")
    is_half = cfg.train.precision != "fp32"

    memory = [
        Row(
            "program",
            measure_program(cfg.framework, min(world_size, 2)),
            f"Python and {cfg.framework}, with next to no tensors",
        ),
        Row("weights", bytes_of(replicated)),
        Row("momentum", trained),
        Row("gradients", trained),
        activation_row(model, arch, spec.dropout_masks(arch), train_set.fields[0], batch_plan.batch, is_half),
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
    )
    for name, (rows, width) in sharded.items():
        memory += sharded_memory(name, rows, width, setting)
        if world_size > 1:
            messages += sharded_messages(width, setting)
    precision = "16 bits" if is_half else "fp32"
    head = f"{world_size} process(es), {schedule.describe(batch_plan, cfg.optim)}; {precision}"
    return memory, messages, head


def is_trained(spec: Spec, arch: Any, name: str) -> bool:
    """Return whether a tensor is a parameter that the recipe does not freeze."""
    is_statistic = name.endswith((".running_mean", ".running_var"))
    return not is_statistic and spec.lr_and_decay_scale(arch, name)[0] != 0


def bytes_of(shapes: Mapping[str, Sequence[int]]) -> int:
    """Return the size of fp32 tensors in bytes."""
    return FP32_SIZE * sum(math.prod(shape) for shape in shapes.values())


def sharded_memory(name: str, count: int, width: int, setting: Sharding) -> list[Row]:
    """List the memory of a parameter (count, width) whose rows are split over the processes."""
    first, last = sharding.row_range(count, 0, setting.world_size)
    held = used = last - first
    if setting.sample_rate < 1:
        used = sharding.num_active_rows(held, setting.sample_rate, setting.samples * setting.accumulate)
    size, logits = held * width * FP32_SIZE, setting.samples * used * FP32_SIZE
    rows = [
        Row(name, size, f"{held:,} of {count:,} rows"),
        Row(f"{name}, momentum", size),
        Row(f"{name}, gradient", used * width * FP32_SIZE, f"of {used:,} rows"),
        Row("logits", LOGITS_COPIES[setting.framework] * logits, f"{setting.samples:,} samples x {used:,} rows"),
    ]
    copies = (SAMPLED_ROWS_COPIES if setting.sample_rate < 1 else ALL_ROWS_COPIES)[setting.framework]
    if copies:
        rows.append(Row(f"{name}, rows used", copies * used * width * FP32_SIZE, "copies during the update"))
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
        raise UserError(f"{framework} is not installed here: pip install '.[{framework}]'")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tools.launch", f"1x{processes}", "--logs", f"{folder}/logs"]
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


def activation_row(
    model: str, arch: Any, dropout_masks: Sequence[DropoutMask], field: Field, batch: int, is_half: bool
) -> Row:
    size = measure_activations(model, arch, dropout_masks, field, batch, is_half)
    if size is None:
        return Row("activations", 0, "unknown: PyTorch, which they are measured with, is not installed")
    return Row("activations", size, f"of {batch} samples")


def measure_activations(
    model: str, arch: Any, dropout_masks: Sequence[DropoutMask], field: Field, batch: int, is_half: bool
) -> int | None:
    """Measure what PyTorch keeps of a forward pass for the backward pass.

    The model runs on fake tensors, which have shapes and no content.

    Args:
        model: name of the model.
        arch: its complete architecture.
        dropout_masks: its further inputs in training.
        field: its input.
        batch: number of samples.
        is_half: whether to compute in 16 bits.

    Returns:
        Bytes, or None if PyTorch is not installed.
    """
    try:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ModuleNotFoundError:
        return None
    Model = load_model_class(model, "torch")
    shape = field.shape if field.mean is None else (*field.shape[:-3], field.shape[-1], *field.shape[-3:-1])
    sizes: dict[int, int] = {}
    saved = []
    with FakeTensorMode():
        module = Model(arch).train()
        weights = {tensor.untyped_storage()._cdata for tensor in (*module.parameters(), *module.buffers())}

        def save(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in weights:
                sizes[storage._cdata] = storage.nbytes()
                saved.append(tensor)  # kept alive, so that no other storage takes its address
            return tensor

        inputs = [torch.empty(batch, *shape)] + [torch.empty(batch, *mask.shape) for mask in dropout_masks]
        with (
            torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=is_half),
        ):
            module(*inputs)
    return sum(sizes.values())


def format_table(title: str, rows: Sequence[Row], total: str) -> str:
    """Format rows as lines in MiB, with their sum last."""
    lines = [title] + [
        f"  {row.name:<24}{row.size / 2**20:>12,.1f} MiB{'  ' + row.remark if row.remark else ''}" for row in rows
    ]
    return "\n".join(lines + [f"  {total:<24}{sum(row.size for row in rows) / 2**20:>12,.1f} MiB"])


if __name__ == "__main__":
    cli_main()
