"""Time the trainer's update against a bare loop of its framework, in turn on the same batch."""

import importlib
import os
import statistics
from collections.abc import Callable
from typing import Any

from zoo import program
from zoo.bench.bare import LR
from zoo.bench.interleave import interleave, median_ratio
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.commands.options import add_recipe_arguments, request_of
from zoo.data.errors import UserError
from zoo.program import count
from zoo.run.job import Job, assemble, join, sample_batch
from zoo.table import table
from zoo.trainer.protocol import DeviceBatch

EPILOG = """\
The bare loop has the same model, input, precision, clipping and parameter groups. A ratio of 1.02 means that the
trainer takes 2 %% more time.

examples
  %(prog)s -c tsm_demo
  %(prog)s -c tsm_k400 --amp -o data.root=/data/k400 -o model.pretrained=null
  %(prog)s -c tsm_demo --framework mindspore --json update.json"""
WARM_UP = 3  # updates that are not measured: allocators, kernel choices, compilation
TRAINER, BARE = "this trainer", "bare loop"
BARE_LOSSES = ("cross_entropy", "combined", "arcface", "cosface")
Report = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    require_new(arguments.json, "--json")
    request = request_of(arguments)
    check_loss(request.config.task)
    job = assemble(request, join(request, os.environ))
    report = measure(job, arguments.count)
    if job.group.rank == 0:
        print_report(describe(report), report, arguments.json)
    job.group.close()
    job.world.exit_process(0)
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add_recipe_arguments(parser)
    parser.add_argument("-n", "--count", type=count, default=30, metavar="N", help="updates of each loop; default 30")
    add_json_argument(parser)
    return parser


def check_loss(settings: Any) -> None:
    """Check that the bare loops have the loss of a task's settings, but for options that cost next to nothing."""
    if settings.loss not in BARE_LOSSES:
        raise UserError(f"task.loss: the bare loops have no {settings.loss}, but {', '.join(BARE_LOSSES)}; choose one")
    if getattr(settings, "ohem_kept", None) is not None:
        raise UserError("task.ohem_kept: the bare loops train on all pixels; give -o task.ohem_kept=null")
    if getattr(settings, "sample_rate", 1) < 1:
        raise UserError("task.sample_rate: the bare loops use all classes; give -o task.sample_rate=1")


def measure(job: Job, count: int) -> Report:
    """Time both loops; the report has JSON's types."""
    if job.plan.mode.is_fp64:
        raise UserError("train.precision: the bare loops have no fp64; give another precision")
    bare = importlib.import_module(f"zoo.bench.bare.{job.framework}")
    if job.plan.optimizer.name not in bare.OPTIMIZERS:
        raise UserError(
            f"optim.name: the bare loop of {job.framework} has no {job.plan.optimizer.name}; "
            f"give {', '.join(bare.OPTIMIZERS)}"
        )
    batch = sample_batch(job)
    loops = {TRAINER: trainer_loop(job, batch), BARE: bare.loop(job, batch)}
    times = interleave(loops, count, warm_up=WARM_UP)
    return {
        "framework": job.framework,
        "compute": job.plan.mode.compute,
        "device": job.world.device,
        "samples": job.clock.global_batch,
        "seconds": {name: [seconds.wall for seconds in calls] for name, calls in times.items()},
        "ratio": median_ratio(times[TRAINER], times[BARE]).wall,
    }


def describe(report: Report) -> list[str]:
    count, samples = len(report["seconds"][TRAINER]), report["samples"]
    rows = []
    for name, seconds in report["seconds"].items():
        median = statistics.median(seconds)
        milliseconds = (f"{1e3 * value:.2f}" for value in (median, min(seconds), max(seconds)))
        rows.append((name, *milliseconds, f"{samples / median:.1f}"))
    return [
        f"{report['framework']}: {report['compute']} on {report['device']}, {count} updates of {samples} samples each",
        *table(rows, ("", "median, ms", "min", "max", "samples/s")),
        f"ratio {report['ratio']:.4f} ({TRAINER} / {BARE}, median of {count} pairs)",
    ]


def trainer_loop(job: Job, batch: DeviceBatch) -> Callable[[], None]:
    """Return an update as train.py does it, with its exchange between the ranks."""
    micro_batches = [batch] * job.plan.accumulate

    def update() -> None:
        output = job.trainer.step(micro_batches, LR, 0)
        job.group.all_gather({"stop": None, "bad": []})
        job.trainer.read(output)

    return update
