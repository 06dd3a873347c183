"""Predict the throughput of a recipe at 1 to 1024 cards from measurements on one host."""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evidence.scale import calibration, measuring, model, published
from evidence.scale.calibration import Calibration
from evidence.scale.model import Link, Prediction
from zoo import program
from zoo.bench.options import Cluster, cluster, several
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.commands.options import add_recipe_arguments
from zoo.program import count, number, positive
from zoo.table import table

EPILOG = """\
examples
  %(prog)s calibrate -c resnet50_demo --out demo.json
  %(prog)s predict --calibration demo.json --worlds 1,2,4x8 --inter-bandwidth 10 --inter-latency 20
  %(prog)s validate

Worlds are processes of one host, or hosts x processes. Bandwidths are in GB/s (10^9 bytes), latencies in microseconds
per message."""
CALIBRATE = """\
Measure a recipe on this host: updates of one process and of several at once, the rate of the input, and all-reduces;
with --worlds 1,2 whole runs too, which show how much of an all-reduce the backward pass hides."""
PREDICT = "Predict throughput, its error bars (5th and 95th percentile), efficiency and limit from a calibration."
VALIDATE = "Compare the closed form with published tables."
Cells = dict[str, Any]
not_negative = number(float, lambda value: 0 <= value < math.inf, "a number of at least 0")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    top = program.parser(__doc__, EPILOG)
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for run, add_options, text in (
        (calibrate, _add_calibrate, CALIBRATE),
        (predict, _add_predict, PREDICT),
        (validate, add_json_argument, VALIDATE),
    ):
        part = commands.add_parser(run.__name__, help=text.partition("\n")[0], description=text)
        add_options(part)
        part.set_defaults(run=run)
    arguments = top.parse_args(argv)
    require_new(getattr(arguments, "json", None), "--json")
    arguments.run(arguments)
    return 0


def calibrate(arguments: argparse.Namespace) -> None:
    """Measure a recipe and write the file."""
    require_new(arguments.out, "--out")
    measured = measuring.calibrate(arguments)
    calibration.write(measured, arguments.out)
    print(f"{arguments.out}: {measured.recipe}, {measured.framework} on {measured.device}")


def predict(arguments: argparse.Namespace) -> None:
    """Predict from a calibration."""
    clusters, measured = arguments.worlds, calibration.read(arguments.calibration)
    inter = _link(arguments, "inter") if arguments.inter_bandwidth is not None else None
    built = model.build(measured, inter)
    alone = model.predict(built, Cluster(1, 1))
    bars = model.intervals(measured, clusters, inter)
    rows = [_cells(model.predict(built, wanted), bar, alone) for wanted, bar in zip(clusters, bars)]
    print_report([*_table(rows), "", *_notes(measured, clusters)], rows, arguments.json)


def validate(arguments: argparse.Namespace) -> None:
    """Compare the closed form with published tables."""
    report = published.validate()
    rows = {name: [{**row._asdict(), "error": row.error} for row in report[name]] for name in ("held_out", "one_host")}
    print_report(_validation(report), {**report, **rows}, arguments.json)


def _cells(prediction: Prediction, interval: tuple[float, float], alone: Prediction) -> Cells:
    ideal = alone.samples_per_s * prediction.cluster.size
    return {
        "cards": str(prediction.cluster),
        "samples/s": prediction.samples_per_s,
        "5 %": interval[0],
        "95 %": interval[1],
        "efficiency %": 100 * prediction.samples_per_s / ideal,
        "step ms": 1000 * prediction.seconds,
        "compute ms": 1000 * prediction.compute,
        "slowest ms": 1000 * prediction.waiting,
        "all-reduce ms": 1000 * prediction.all_reduce,
        "input ms": 1000 * prediction.input,
        "limit": prediction.limit,
    }


def _table(rows: Sequence[Cells]) -> list[str]:
    """Return the lines of a Markdown table of rows with equal keys, numbers rounded."""
    return table([[_rounded(value) for value in row.values()] for row in rows], list(rows[0]), markdown=True)


def _rounded(value: Any) -> Any:
    return value if not isinstance(value, float) else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _notes(measured: Calibration, clusters: Sequence[Cluster]) -> list[str]:
    """Return what a reader of a table must know of its calibration."""
    cards = max(measured.steps)
    notes = [f"{measured.recipe}, {measured.framework} on {measured.device}, {measured.batch} samples per card."]
    if max(wanted.cards for wanted in clusters) > cards:
        notes.append(f"More than {cards} processes on a host were not measured: their computing and input are guesses.")
    if any(wanted.hosts > 1 for wanted in clusters):
        notes.append("No run on several hosts was measured: the link is as given.")
    return notes


def _validation(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of a report of `validate`."""
    columns = ("workload", "cards", "published", "predicted", "error")
    titles = {
        "held_out": f"32 cards from rows of up to 16; {report['parameters']} fitted numbers",
        "one_host": "16 and 32 cards from rows of one host",
    }
    lines = []
    for key, title in titles.items():
        rows, errors = report[key], published.errors(report[key])
        cells = [(r.name, r.cards, f"{r.published:.1f}", f"{r.predicted:.1f}", f"{r.error:+.1%}") for r in rows]
        summary = f"max {errors.max():.1%}, mean {errors.mean():.1%}, median {np.median(errors):.1%}"
        lines += [title, "", *table(cells, columns, markdown=True), summary, ""]
    constant = 1000 * report["seconds_per_mb"]
    return [*lines, f"the second host adds {constant:.3f} ms per MB of gradients: the median of 89 other tables"]


def _link(arguments: argparse.Namespace, name: str) -> Link:
    bandwidth, latency = (getattr(arguments, f"{name}_{key}") for key in ("bandwidth", "latency"))
    return Link(latency * 1e-6, 1 / (bandwidth * 1e9))


def _add_calibrate(part: argparse.ArgumentParser) -> None:
    add_recipe_arguments(part)
    add = part.add_argument
    counts = several(count)
    add("--processes", type=counts, default=[1, 2], metavar="N,N", help="that compute and read at once; default 1,2")
    add("--worlds", type=counts, default=[1], metavar="N,N", help="processes of whole runs, which show the overlap; 1")
    add("-n", "--rounds", type=count, default=2, metavar="N", help="repetitions of all runs, in turn; default 2")
    add("--drop", type=count, default=5, metavar="N", help="updates before the clock of a run starts; default 5")
    add("--count", type=count, default=30, metavar="N", help="updates that a run times; default 30")
    add("--out", required=True, metavar="FILE", help="new file for the calibration")


def _add_predict(part: argparse.ArgumentParser) -> None:
    part.add_argument("--calibration", required=True, metavar="FILE", help="of `calibrate`")
    part.add_argument("--inter-bandwidth", type=positive, metavar="GB/S", help="between hosts, each way")
    latency = "of a message between hosts; default 0"
    part.add_argument("--inter-latency", type=not_negative, default=0.0, metavar="US", help=latency)
    worlds = "cards to predict, such as 1,8,4x8,128x8"
    part.add_argument("--worlds", type=several(cluster), required=True, metavar="N,HxN", help=worlds)
    add_json_argument(part)
