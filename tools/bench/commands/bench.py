"""Time the trainer's step against a bare loop of its framework, the data alone, exported models, or streams."""

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from zoo.bench.timing import data as data_timing
from zoo.bench.timing import streaming
from zoo.bench.timing.deploy import command as deploy
from zoo.commands.new_file import require_new
from zoo.data import order
from zoo.data.batch import collate
from zoo.data.errors import UserError
from zoo.run import cli
from zoo.run.job import Job, assemble, join
from zoo.trainer.protocol import DeviceBatch

EPILOG = """\
step   one update of this trainer and one of a plain loop (same model, input, precision, clipping and parameter groups),
       in turn on the same batch; a ratio of 1.02 means that this trainer takes 2 % more time
data   samples per second of the input pipeline alone, and the time and CPU time of a sample by stage
deploy latency and throughput of models in PyTorch and, exported, in ONNX Runtime, called in turn; a Markdown table with
       parameters, operations and the size of the files
stream the same of the frames of a stream, with the state of a causal TSM (tsm_online_k400); with --upstream, also of
       mit-han-lab's online demo, with the same weights

examples
  python tools/bench.py step -c configs/tsm_demo.yaml
  python tools/bench.py step -c configs/tsm_k400.yaml --amp -o data.root=/data/k400 -o model.pretrained=null
  python tools/bench.py step -c configs/tsm_demo.yaml --framework mindspore
  python tools/bench.py data -c configs/tsm_k400.yaml -o data.root=/data/k400 -o data.workers=8 --json data.json
  python tools/bench.py deploy --threads 2
  python tools/bench.py stream --threads 2 --upstream clones"""
LR = 1e-3
WARMUP_STEPS = 3  # not measured: allocators, kernel choices, compilation
Report = dict[str, Any]
TRAINER, BARE = "this trainer", "bare loop"
BARE_LOSSES = ("cross_entropy", "combined", "arcface", "cosface")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", metavar="COMMAND", required=True)
    for name, subject in (("step", "steps of each loop to measure"), ("data", "batches to read")):
        command = commands.add_parser(name, help=f"time the {name}")
        cli.add_recipe_arguments(command)
        command.add_argument("-n", "--count", type=int, default=30, metavar="N", help=f"{subject}; default 30")
        command.add_argument("--json", metavar="FILE", help="write what was measured to a new file, too")
    deploy.add_arguments(commands.add_parser("deploy", help="time exported models"))
    streaming.add_arguments(commands.add_parser("stream", help="time the frames of a stream"))
    arguments = parser.parse_args(argv)
    try:
        if arguments.what in ("deploy", "stream"):
            report = (deploy if arguments.what == "deploy" else streaming).run(arguments)
            if arguments.json:
                write(report, arguments.json)
        else:
            bench_recipe(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def bench_recipe(arguments: argparse.Namespace) -> None:
    """Time the step or the data of a recipe, print the result and write it.

    Raises:
        UserError: an option or the recipe is wrong.
    """
    if arguments.count < 1:
        raise UserError("--count: must be at least 1")
    require_new(arguments.json, "--json")
    request = cli.request_of(arguments)
    if arguments.what == "step":
        check_loss(request.config.task)
    job = assemble(request, join(request, os.environ), measure=arguments.what == "step")
    if arguments.what == "step":
        report = bench_step(job, arguments.count)
        lines = [*job.choice.notes, *describe_step(report)]
    else:
        report = data_timing.measure_data(job, arguments.count)
        lines = data_timing.describe(report)
    if job.group.rank == 0:
        print("\n".join(lines))
        if arguments.json:
            write(report, arguments.json)
    job.group.close()
    job.world.exit_process(0)


def check_loss(settings: Any) -> None:
    """Check that the bare loops have the loss of a task's settings, but for options that cost next to nothing.

    Raises:
        UserError: they do not; the message names the key.
    """
    if settings.loss not in BARE_LOSSES:
        raise UserError(f"task.loss: the bare loops have no {settings.loss}, but {', '.join(BARE_LOSSES)}; choose one")
    if getattr(settings, "ohem_kept", None) is not None:
        raise UserError("task.ohem_kept: the bare loops train on all pixels; give -o task.ohem_kept=null")
    if getattr(settings, "sample_rate", 1) < 1:
        raise UserError("task.sample_rate: the bare loops use all classes; give -o task.sample_rate=1")


def bench_step(job: Job, count: int) -> Report:
    """Time both loops in turn, step by step, so that a drift of the machine's speed affects both alike.

    Returns:
        What was measured: of each loop the seconds of every step.

    Raises:
        UserError: the bare loop cannot do the recipe's update.
    """
    if job.plan.mode.is_fp64:
        raise UserError("train.precision: the bare loops have no fp64; give another precision")
    module = importlib.import_module(f"zoo.bench.bare.{job.framework}")
    if job.plan.optimizer.name not in module.OPTIMIZERS:
        raise UserError(
            f"optim.name: the bare loop of {job.framework} does not do {job.plan.optimizer.name}; "
            f"give {', '.join(module.OPTIMIZERS)}"
        )
    device_batch = sample_batch(job)
    bare = module.loop(job, device_batch)
    loops = {TRAINER: trainer_loop(job, device_batch), BARE: bare}
    for loop in loops.values():
        for _ in range(WARMUP_STEPS):
            loop()
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for step in range(count):
        for name, loop in sorted(loops.items(), reverse=step % 2 == 0):  # neither is always first
            start = time.perf_counter()
            loop()
            seconds[name].append(time.perf_counter() - start)
    return {
        "framework": job.framework,
        "compute": job.plan.mode.compute,
        "device": job.world.device,
        "samples": job.clock.global_batch,
        "seconds": seconds,
    }


def describe_step(report: Report) -> list[str]:
    """Return the lines of a report of `bench_step`."""
    seconds, samples = report["seconds"], report["samples"]
    count = len(seconds[TRAINER])
    median = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = [a / b for a, b in zip(seconds[TRAINER], seconds[BARE])]
    return [
        f"{report['framework']}: {report['compute']} on {report['device']}, {count} steps of {samples} samples each",
        *(
            f"{name:<13} median {median[name] * 1e3:9.2f} ms  min {min(values) * 1e3:9.2f}  "
            f"max {max(values) * 1e3:9.2f}  {samples / median[name]:9.1f} samples/s"
            for name, values in seconds.items()
        ),
        f"ratio {statistics.median(ratios):.4f} ({TRAINER} / {BARE}, median of {count} pairs), "
        f"of the medians {median[TRAINER] / median[BARE]:.4f}",
    ]


def write(report: Report, path: str) -> None:
    """Write a report as JSON.

    Raises:
        UserError: the file exists, or cannot be written.
    """
    try:
        with open(path, "x", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
    except OSError as error:
        raise UserError(f"--json {path}: {error.strerror}") from None


def sample_batch(job: Job) -> DeviceBatch:
    """Return a micro-batch on the device."""
    rows = []
    for index in range(job.batch_plan.batch):
        row = job.train_set.sample(index % len(job.train_set), order.generator(0, "bench", index))
        masks = {mask.name: mask.sample(order.generator(0, mask.name, index)) for mask in job.dropout_masks}
        rows.append({**row, **masks})
    return job.trainer.to_device(collate(rows, len(rows)))


def trainer_loop(job: Job, device_batch: DeviceBatch) -> Callable[[], None]:
    """Return one update as train.py does it, with its exchange between the ranks."""
    micro_batches = [device_batch] * job.plan.accumulate

    def update() -> None:
        output = job.trainer.step(micro_batches, LR, 0)
        job.group.all_gather({"stop": None, "bad": []})
        job.trainer.read(output)

    return update
