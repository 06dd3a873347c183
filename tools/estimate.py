"""What a recipe needs of every process, before anything starts: bytes of memory, and what travels in an update."""

import argparse
import importlib.util
import math
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from collections.abc import Sequence
from typing import Any, NamedTuple

import data
from data.batch import Field
from data.errors import UserError
from zoo import tasks
from zoo.models import load_model_class, load_spec, resolve_arch
from zoo.run import cli, schedule
from zoo.trainer import sharding

EPILOG = """\
weights, momentum and gradients are exact. activations are what PyTorch keeps for the backward pass of this net, found
without computing anything, where PyTorch is installed; the other frameworks keep about as much. With 16 bits they are
counted in 16 bits. The class matrix of a face net is split over the processes: only its rows count, and the logits of
the whole global batch with them; with task.sample_rate below 1 the rows that an update uses are counted in addition.
`program` is what a run needs whose net is tiny: Python, the framework and what it loads, compiles and keeps for itself;
measured here and now on the CPU with one process or two, which takes some seconds, half a minute in MindSpore.

For other data than those that are there, such as a million identities: -o data.name=random_faces
-o data.num_classes=1000000.

examples
  python tools/estimate.py -c configs/arcface_ms1m.yaml --world 8
  python tools/estimate.py -c configs/resnet50_imagenet.yaml --amp"""
FLOAT = 4  # bytes
# How many matrices of logits' size live at once, and how many of the size of the rows used (beside their gradient) when
# Partial FC updates them. Read off zoo/trainer/<framework>/margin.py and shard.py, and measured.
LOGITS = {"torch": 1, "paddle": 1, "mindspore": 4}
ROWS = {"torch": 4, "paddle": 4, "mindspore": 4}
UPDATE = {"torch": 0, "paddle": 0, "mindspore": 2}  # beside the gradient, where all rows are used: products of it
# A run that hardly needs anything for itself.
TINY = [
    "model.variant=insightface",
    "model.depth=18",
    "model.width=8",
    "model.embedding=8",
    "data.size=16",
    "data.num_classes=10",
    "data.val_pairs=10",
    "data.workers=0",
    "train.batch=4",
    "train.global_batch=4",
    "train.eval_batch=10",
    "train.steps=2",
]


class Row(NamedTuple):
    what: str
    size: int  # bytes
    remark: str = ""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(
        prog="estimate.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="recipe, as for train.py")
    parser.add_argument("--world", type=int, metavar="N", default=1, help="number of processes; default 1")
    parser.add_argument("-o", "--override", metavar="KEY=VALUE", action="append", default=[], help="as for train.py")
    parser.add_argument("--amp", action="store_true", help="as for train.py")
    parser.add_argument("--framework", help="as for train.py")
    arguments = parser.parse_args(argv)
    words = ["-c", arguments.config] + [word for pair in arguments.override for word in ("-o", pair)]
    words += ["--amp"] * arguments.amp + (["--framework", arguments.framework] if arguments.framework else [])
    try:
        if arguments.world < 1:
            raise UserError("--world: must be at least 1")
        request = cli.read(cli.parse(words))
        memory, messages, head = estimate(request, arguments.world)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(head)
    print(table("memory of the process that needs most, of each " + request.config.framework, memory, "at its peak"))
    print(table("travels from and to each process in an update", messages, "in all"))
    return 0


def estimate(request: cli.Request, size: int) -> tuple[list[Row], list[Row], str]:
    """Rows of memory, rows of messages, and a line on the run. Raises UserError."""
    cfg = request.config
    batch_plan = schedule.batch_plan(cfg.train, size)
    train_set, _ = data.find(request.resolved["data.name"].value).load(cfg.data)
    spec = load_spec(request.resolved["model.name"].value)
    task = tasks.find(spec.TASK)
    arch = resolve_arch(spec, cfg.model, train_set.fields, len(train_set.classes))
    split = {name: spec.shapes(arch)[name] for name in spec.SHARDED_PARAMETERS}
    whole = {name: shape for name, shape in spec.shapes(arch).items() if name not in split}
    trained = [
        name
        for name in (*whole, *split)
        if not name.endswith((".running_mean", ".running_var")) and spec.lr_and_decay_scale(arch, name)[0]
    ]
    replicated, statistics = bytes_of(whole), bytes_of({name: whole[name] for name in whole if name not in trained})
    moving = replicated - statistics
    half = cfg.train.precision != "fp32"

    memory = [
        Row("program", program(cfg.framework, min(size, 2)), f"Python and {cfg.framework}, with next to no tensors"),
        Row("weights", replicated),
        Row("momentum", moving),
        Row("gradients", moving),
    ]
    messages = []
    if size > 1:
        messages.append(Row("gradients", moving // (2 if cfg.train.fp16_allreduce else 1), "summed over processes"))
    kept = activations(
        request.resolved["model.name"].value,
        arch,
        spec.dropout_masks(arch),
        train_set.fields[0],
        batch_plan.batch,
        half,
    )
    memory.append(
        Row(
            "activations",
            kept or 0,
            f"of {batch_plan.batch} samples"
            if kept is not None
            else "unknown: PyTorch, which tells them, is not installed",
        )
    )
    for name, (count, width) in split.items():
        samples = batch_plan.batch * batch_plan.ranks
        rate = getattr(task.objective(cfg.task), "sample_rate", 1.0)
        first, last = sharding.rows(count, 0, size)
        held = last - first
        used = held if rate == 1 else sharding.used(held, rate, samples * batch_plan.accumulate)
        rows = held * width * FLOAT
        memory += [
            Row(name, rows, f"{held:,} of {count:,} rows"),
            Row(f"{name}, momentum", rows),
            Row(f"{name}, gradient", used * width * FLOAT, f"of {used:,} rows"),
            Row("logits", LOGITS[cfg.framework] * samples * used * FLOAT, f"{samples:,} samples x {used:,} rows"),
        ]
        copies = (ROWS if rate < 1 else UPDATE)[cfg.framework]
        if copies:
            memory.append(Row(f"{name}, rows used", copies * used * width * FLOAT, "copies while they move"))
        if size > 1:
            features = samples * width * FLOAT * batch_plan.accumulate
            messages += [
                Row("embeddings", features, "gathered"),
                Row("their gradient", features, "summed"),
                Row("maxima, sums, targets", 3 * samples * FLOAT * batch_plan.accumulate),
            ]
    head = f"{size} process(es), {schedule.describe(batch_plan, cfg.optim)}; {'16 bits' if half else 'fp32'}"
    return memory, messages, head


def bytes_of(shapes: dict[str, Sequence[int]]) -> int:
    return FLOAT * sum(math.prod(shape) for shape in shapes.values())


def program(framework: str, processes: int) -> int:
    """The memory of a run that hardly has anything to hold: of the process that takes most. Raises UserError."""
    if importlib.util.find_spec(framework) is None:
        raise UserError(f"{framework} is not installed here: pip install '.[{framework}]'")
    with tempfile.TemporaryDirectory() as folder:
        words = [
            sys.executable,
            "tools/launch.py",
            f"1x{processes}",
            "--logs",
            f"{folder}/logs",
            "--out",
            f"{folder}/run",
            "-c",
            "configs/arcface_synthetic.yaml",
            "--framework",
            framework,
            "--device",
            "cpu",
        ]
        words += [word for setting in TINY for word in ("-o", setting)]
        # A process of its own, so that no child but these counts.
        code = (
            f"import resource, subprocess\nfailed = subprocess.run({words}).returncode\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\nraise SystemExit(failed)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise UserError(
            f"a tiny run in {framework} failed, so its memory is unknown:\n" + (done.stdout + done.stderr)[-2000:]
        )
    return int(done.stdout.split()[-1]) * 1024


def activations(
    model: str, arch: Any, dropout_masks: Sequence[Any], field: Field, batch: int, half: bool
) -> int | None:
    """What PyTorch keeps of a forward pass for the backward one, in bytes; None if it is not installed.

    The net runs on fake tensors, which have shapes and no content.
    """
    try:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ModuleNotFoundError:
        return None
    Model = load_model_class(model, "torch")
    shape = field.shape if field.mean is None else (*field.shape[:-3], field.shape[-1], *field.shape[-3:-1])
    found: dict[int, int] = {}
    with FakeTensorMode():
        net = Model(arch).train()
        own = {tensor.untyped_storage()._cdata for tensor in (*net.parameters(), *net.buffers())}
        kept = []

        def keep(tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                found[storage._cdata] = storage.nbytes()
                kept.append(tensor)  # alive, so that no other storage takes its address
            return tensor

        inputs = [torch.empty(batch, *shape)] + [torch.empty(batch, *source.shape) for source in dropout_masks]
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=half),
        ):
            net(*inputs)
    return sum(found.values())


def table(title: str, rows: Sequence[Row], total: str) -> str:
    lines = [title] + [
        f"  {row.what:<24}{row.size / 2**20:>12,.1f} MiB{'  ' + row.remark if row.remark else ''}" for row in rows
    ]
    return "\n".join(lines + [f"  {total:<24}{sum(row.size for row in rows) / 2**20:>12,.1f} MiB"])


if __name__ == "__main__":
    sys.exit(main())
