"""What the zoo's own code costs: the trainer's step against a bare framework loop, the data pipeline alone."""

import argparse
import importlib
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collections.abc import Callable

import numpy as np

from data import order
from data.batch import collate
from data.errors import UserError
from data.formats import video
from data.stream import open_training
from data.transforms import clips
from zoo.run import cli
from zoo.run.job import Job, assemble, join
from zoo.tasks import face

EPILOG = """\
step   one update of this trainer and one of a plain loop (same net, input, precision, clipping and parameter groups),
       in turn on the same batch; a ratio of 1.02 says that this trainer takes 2 % more time
data   samples per second of the input pipeline alone, and where one reader thread spends its time

examples
  python tools/bench.py step -c configs/tsm_demo.yaml
  python tools/bench.py step -c configs/tsm_k400.yaml --amp -o data.root=/data/k400 -o model.pretrained=null
  python tools/bench.py step -c configs/tsm_demo.yaml --framework mindspore
  python tools/bench.py data -c configs/tsm_k400.yaml -o data.root=/data/k400 -o data.workers=8"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.py", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("step", "data"))
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="recipe to measure")
    parser.add_argument(
        "-n",
        "--count",
        type=int,
        default=30,
        metavar="N",
        help="measured steps of each kind, or batches to read; default 30",
    )
    parser.add_argument("-o", "--override", metavar="KEY=VALUE", action="append", default=[], help="as for train.py")
    parser.add_argument("--amp", action="store_true", help="as for train.py")
    parser.add_argument("--framework", help="as for train.py")
    parser.add_argument("--device", metavar="NAME", help="as for train.py")
    arguments = parser.parse_args(argv)
    recipe = ["-c", arguments.config] + [word for pair in arguments.override for word in ("-o", pair)]
    recipe += ["--amp"] * arguments.amp
    for flag in ("framework", "device"):
        recipe += [f"--{flag}", getattr(arguments, flag)] if getattr(arguments, flag) else []
    try:
        if arguments.count < 1:
            raise UserError("--count: must be at least 1")
        request = cli.read(cli.parse(recipe))
        job = assemble(request, join(request, os.environ))
        lines = (bench_step if arguments.what == "step" else bench_data)(job, arguments.count)
        if job.group.rank == 0:
            print("\n".join(lines))
        job.group.close()
        job.world.exit_process(0)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def bench_step(job: Job, count: int) -> list[str]:
    """Both loops in turn, step by step, so that a machine whose speed drifts is the same for both."""
    if job.task is face and job.trainer.objective.settings.sample_rate < 1:
        raise UserError("the bare loops use all classes: -o task.sample_rate=1")
    rows = [
        job.train_set.sample(index % len(job.train_set), order.generator(0, "bench", index))
        for index in range(job.batch_plan.batch)
    ]
    for index, row in enumerate(rows):
        row.update({source.name: source.draw(order.generator(0, source.name, index)) for source in job.dropout_masks})
    device_batch = job.trainer.to_device(collate(rows, len(rows)))
    parts = [device_batch] * job.plan.accumulate

    def ours() -> None:
        output = job.trainer.step(parts, 1e-3)
        job.group.all_gather({"stop": None, "bad": []})  # as train.py does
        job.trainer.read(output)

    bare = importlib.import_module(f"tools.bare.{job.framework}").loop(job, device_batch)
    loops = {"this trainer": ours, "bare loop": bare}
    for loop in loops.values():
        for _ in range(3):  # allocators, kernel choices, compilation
            loop()
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(count):
        for name, loop in sorted(loops.items(), reverse=number % 2 == 0):  # neither is always first
            began = time.perf_counter()
            loop()
            seconds[name].append(time.perf_counter() - began)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    lines = [
        f"{name:<13} median {median[name] * 1e3:9.2f} ms  min {min(values) * 1e3:9.2f}  "
        f"max {max(values) * 1e3:9.2f}  {job.clock.global_batch / median[name]:9.1f} samples/s"
        for name, values in seconds.items()
    ]
    pairs = [a / b for a, b in zip(seconds["this trainer"], seconds["bare loop"])]
    title = (
        f"{job.framework}: {job.plan.mode.compute} on {job.world.device}, {count} steps of "
        f"{job.clock.global_batch} samples each"
    )
    return (
        [title]
        + lines
        + [
            f"ratio {statistics.median(pairs):.4f} (this trainer / bare loop, median of {count} pairs), "
            f"of the medians {median['this trainer'] / median['bare loop']:.4f}"
        ]
    )


def bench_data(job: Job, count: int) -> list[str]:
    """The stream as training opens it, then single samples in this thread with the two halves timed."""
    batch, settings = job.batch_plan.batch, job.train_set.settings
    stream = open_training(job.train_set, 0, batch, 0, count + 2, dropout_masks=job.dropout_masks)
    next(stream), next(stream)  # workers start
    began = time.perf_counter()
    for _ in stream:
        pass
    rate = count * batch / (time.perf_counter() - began)

    spent = {"decoding": 0.0, "augmenting": 0.0}
    for module, names, kind in (
        (video, ("video_frames", "picture_frames"), "decoding"),
        (clips, ("resize", "crop", "flip"), "augmenting"),
    ):
        for name in names:
            setattr(module, name, _timed(getattr(module, name), spent, kind))
    samples = min(len(job.train_set), max(count, 20))
    began = time.perf_counter()
    for index in range(samples):
        job.train_set.sample(index, np.random.default_rng(index))
    single = time.perf_counter() - began
    shares = ", ".join(f"{kind} {seconds / single:.0%}" for kind, seconds in spent.items())
    return [
        f"{rate:.1f} samples/s with {settings.workers} workers x {settings.threads} threads "
        f"({count} batches of {batch})",
        f"one thread alone: {samples / single:.1f} samples/s; its time: {shares}, "
        f"the rest {1 - sum(spent.values()) / single:.0%}",
    ]


def _timed(function: Callable, spent: dict[str, float], kind: str) -> Callable:
    def timed(*arguments, **options):
        began = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            spent[kind] += time.perf_counter() - began

    return timed


if __name__ == "__main__":
    sys.exit(main())
