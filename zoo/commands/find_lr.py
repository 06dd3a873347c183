"""Learning-rate range test: train with a learning rate that grows until the loss diverges, and suggest one."""

import math
import os
import statistics
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np

from zoo import program
from zoo.commands.options import add_recipe_arguments, request_of
from zoo.data import durable, extras
from zoo.data.errors import UserError
from zoo.data.stream import open_training
from zoo.run.folder import new_results
from zoo.run.job import Job, assemble, join
from zoo.run.pipeline import SPARE, Prefetcher
from zoo.run.resume import restore
from zoo.table import csv_text, table

EPILOG = """\
The rate grows by a constant factor from update to update (Smith, arXiv:1506.01186), on the first batches of the recipe,
from its initial weights; nothing is kept of the training. The suggestion is the rate at which the average loss has
fallen by half of its fall: where to begin, not the best rate of a whole run, which zoo sweep finds. Rates are those of
optim.lr: at the global batch optim.base_batch, where the recipe has one.

examples
  %(prog)s -c resnet50_demo
  %(prog)s -c tsm_demo -o optim.name=adamw -o optim.lr=0.001 --low 1e-6 --high 1

Exit codes: 0 a rate is suggested, 1 the loss does not fall, 2 an error to fix on your side."""
SMOOTHED = 1 / 15  # part of the updates over which the loss is averaged
DIVERGED = 4.0  # times the lowest average loss, where the test ends
FALL = 0.05  # part of the average loss that it falls by at least
ROWS = 12  # of the printed table
MIN_STEPS = 30


class Row(NamedTuple):
    """An update.

    Attributes:
        lr: as in optim.lr.
        smoothed: average of the losses around this one.
    """

    lr: float
    loss: float
    smoothed: float


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    if not 0 < arguments.low < arguments.high < math.inf:
        raise UserError("--low, --high: must be positive numbers in ascending order")
    if arguments.steps < MIN_STEPS:
        raise UserError(f"--steps: must be at least {MIN_STEPS}")
    request = request_of(arguments)
    job = assemble(request, join(request, {}))
    restore(request.config, job, None, print)
    base = request.config.optim.base_batch
    scale = job.batch_plan.total / base if base else 1.0
    out = new_results(arguments.out, "find-lr", request.recipe)
    rates = np.geomspace(arguments.low, arguments.high, arguments.steps).tolist()
    rows = smoothed(rates, train(job, request.config.seed, rates, scale))
    if not rows:
        raise UserError(f"--low {arguments.low:g}: the loss of the first update is not finite")
    numbers = [row._asdict() for row in rows]
    durable.write(os.path.join(out, "lr.csv"), csv_text(numbers, Row._fields).encode())
    best = suggestion(rows)
    shown = rows[:: max(1, len(rows) // ROWS)]
    print("\n".join(table([(f"{row.lr:.2e}", f"{row.loss:.4f}", f"{row.smoothed:.4f}") for row in shown], Row._fields)))
    if extras.is_installed("matplotlib"):
        from zoo.commands import charts

        rates, losses, means = ([row[place] for row in rows] for place in range(len(Row._fields)))
        charts.plot_rates(rates, losses, means, best, os.path.join(out, "lr.png"))
    print(f"all {len(rows)} updates are in {out}")
    if best is None:
        print("the loss does not fall at these rates within so few updates: raise --steps, or change --low and --high")
        return 1
    print(f"half of the fall is reached at -o optim.lr={best:.2g}")
    return 0


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add_recipe_arguments(parser)
    add = parser.add_argument
    add("--low", type=float, default=1e-5, metavar="X", help="first learning rate; default 1e-5")
    add("--high", type=float, default=10.0, metavar="X", help="last one, unless the loss diverges; default 10")
    add("--steps", type=int, default=300, metavar="N", help="updates from one to the other; default 300")
    add("--out", metavar="DIR", help="folder for lr.csv and lr.png; default runs/find-lr-<recipe>, never reused")
    return parser


def train(job: Job, seed: int, rates: Sequence[float], scale: float) -> list[float]:
    """Return the losses of one update at each rate, as long as they do not diverge.

    Args:
        rates: as in optim.lr; the trainer's are `scale` times as large.
    """
    losses: list[float] = []
    accumulate, width, lowest = job.plan.accumulate, window(len(rates)), math.inf
    stream = open_training(
        job.train_set, seed, job.batch_plan.batch, 0, len(rates) * accumulate, 0, 1, job.dropout_masks
    )
    with closing(Prefetcher(stream, job.trainer.to_device, accumulate + SPARE)) as prefetcher:
        for step, rate in enumerate(rates):
            numbers = job.trainer.read(job.trainer.step(prefetcher.take(accumulate), scale * rate, step))
            if not math.isfinite(numbers["loss"]):
                break
            losses.append(numbers["loss"])
            if len(losses) >= width:
                average = statistics.mean(losses[-width:])
                lowest = min(lowest, average)
                if average > DIVERGED * lowest:
                    break
    return losses


def window(steps: int) -> int:
    """Return the number of losses that are averaged, an odd one."""
    return 2 * int(steps * SMOOTHED / 2) + 1


def smoothed(rates: Sequence[float], losses: Sequence[float]) -> list[Row]:
    reach = window(len(rates)) // 2
    means = [statistics.mean(losses[max(0, i - reach) : i + reach + 1]) for i in range(len(losses))]
    return [Row(float(rate), *each) for rate, *each in zip(rates, losses, means)]


def suggestion(rows: Sequence[Row]) -> float | None:
    """Return the rate at which the average loss has fallen by half of its fall; None if that is less than FALL."""
    first, lowest = rows[0].smoothed, min(row.smoothed for row in rows)
    half = (first + lowest) / 2
    return next(row.lr for row in rows if row.smoothed <= half) if lowest <= (1 - FALL) * first else None
