"""Repeat a published speed report or training: check the data, plan, estimate the memory, run, and compare with it."""

import argparse
import csv
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zoo import bench, program
from zoo.bench.options import cluster
from zoo.bench.report import runs
from zoo.bench.statistics import CONFIDENCE, WIDE
from zoo.commands.options import add_override_argument
from zoo.config import loader
from zoo.data.errors import UserError, known_names
from zoo.data.formats import regular
from zoo.program import count
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.table import table

REPORTS = Path(bench.__file__).with_name("published.csv")  # docs/airank.md says where its numbers are from
SMALL = {  # name of a model -> recipe whose data the program makes
    "tsm": "tsm_demo",
    "deeplabv3plus": "deeplabv3plus_demo",
    "resnet": "resnet50_demo",
    "arcface": "arcface_demo",
}
EPILOG = """\
Each step is a command, which is printed before it runs: zoo data check, zoo train --plan, zoo bench estimate, and zoo
bench matrix, which starts the runs by zoo launch; the same line continues it. docs/airank.md says how each recipe
differs from its report. --small takes the same steps with the demo of the model, in fp32, on one process: it shows that
they work here, and its speed says nothing about the report's. NAME may also be a recipe of a published training, such
as tsm_k400, which is trained once, by zoo train or zoo launch, and compared with its target.

examples
  %(prog)s                                                 the reports and their rows
  %(prog)s tsm_paddle_airank --world 1x8 -o data.root=/data/k400
  %(prog)s resnet50_mindspore_dlperf --world 4x8 --hosts n1,n2,n3,n4 -o data.root=/data/imagenet
  %(prog)s arcface_plsc_dlperf --small --drop 2 --count 5 -n 3
  %(prog)s tsm_k400 --world 1x8 -o data.root=/data/k400

Exit codes: 0 done, 1 the data have faults, 2 an error to fix on your side."""


class Row(NamedTuple):
    """A row of a report, as published.csv has it."""

    recipe: str  # of configs/reports
    precision: str
    batch: str  # samples per card
    option: str  # further change of the recipe, as for -o; "" for none
    drop: str  # updates before the report's clock starts; "" where it does not say
    world: str  # hosts x processes
    samples_per_s: str


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    with open(REPORTS, encoding="utf-8", newline="") as file:
        rows = [Row(**row) for row in csv.DictReader(file)]
    if arguments.report is None:
        print("\n".join(table(rows, ("report", "precision", "batch", "option", "drop", "world", "samples/s"))))
        return 0
    out = arguments.out or str(Path("results", arguments.report))
    is_training = all(row.recipe != arguments.report for row in rows) and _has_upstream(arguments.report)
    row = None if is_training else _choose(rows, arguments)
    for step in steps(row, arguments, out) if row else training_steps(arguments, out):
        print(f"> zoo {shlex.join(step)}", flush=True)
        if code := subprocess.call(program.command(*step)):
            return code
        print(flush=True)
    print(compare(row, out, arguments.small) if row else compare_training(out))
    return 0


def _has_upstream(name: str) -> bool:
    """Return whether a name is that of a recipe of the zoo that repeats a published training."""
    path = loader.shipped_recipe(name)
    return path is not None and resolve_recipe(Options(path)).config.upstream is not None


def steps(row: Row, arguments: argparse.Namespace, out: str) -> list[list[str]]:
    """Return the commands that repeat a row; out: folder of the matrix."""
    recipe, world, precision = f"reports/{row.recipe}", row.world, row.precision
    resolved = resolve_recipe(Options(loader.find_recipe(recipe))).resolved
    changes = [*([row.option] if row.option else []), *arguments.override]
    batches = ["--batches", row.batch, *(["--drop", row.drop] if row.drop else [])]
    if arguments.small:
        recipe, world, precision, batches = SMALL[str(resolved["model.name"].value)], "1x1", "fp32", []
        changes = list(arguments.override)
    framework = str(resolved["framework"].value)
    common = ["-c", recipe, *(word for change in changes for word in ("-o", change))]
    matrix = ["bench", "matrix", *common, "--frameworks", framework, "--precisions", precision, *batches]
    for key in ("repeats", "drop", "count", "hosts"):
        if (value := getattr(arguments, key)) is not None:
            matrix += [f"--{key}", str(value)]
    sized = [*common, "-o", f"framework={framework}", "-o", f"train.precision={precision}"]
    sized += ["-o", f"train.batch={row.batch}"] if batches else []
    return [
        ["data", "check", *common],
        ["train", *sized, "--plan", world],
        ["bench", "estimate", *sized, "--processes", world],
        [*matrix, "--worlds", world, "--out", out],
    ]


def training_steps(arguments: argparse.Namespace, out: str) -> list[list[str]]:
    """Return the commands that repeat a training; out: folder of the run."""
    if given := [f"--{key}" for key in ("repeats", "drop", "count") if getattr(arguments, key) is not None]:
        raise UserError(f"{', '.join(given)}: of reports of speed; {arguments.report} is trained once")
    recipe, world = arguments.report, arguments.world or "1x1"
    if arguments.small:
        model = resolve_recipe(Options(loader.find_recipe(recipe))).resolved["model.name"].value
        recipe, world = SMALL[str(model)], "1x1"
    changes = [*([f"train.precision={arguments.precision}"] if arguments.precision else []), *arguments.override]
    common = ["-c", recipe, *(word for change in changes for word in ("-o", change))]
    hosts = ["--hosts", arguments.hosts] if arguments.hosts else []
    return [
        ["data", "check", *common],
        ["train", *common, "--plan", world],
        ["bench", "estimate", *common, "--processes", world],
        [*(["train"] if world == "1x1" else ["launch", world, *hosts]), *common, "--out", out, "--resume"],
    ]


def compare_training(out: str) -> str:
    """Return a line on the accuracy of a run beside the target of its recipe."""
    run = runs.read(out)
    best, target = ("none" if value is None else f"{value:.4f}" for value in (run.values.best, run.target))
    return f"{run.metric} {best}; target of {run.case.recipe}: {target}"


def compare(row: Row, out: str, is_small: bool) -> str:
    """Return a line on the throughput of a matrix, with its interval; beside the published one unless it is small."""
    content = regular.load_json(str(Path(out, "results.json")))
    busy, [case] = content["runs_on_a_busy_machine"], content["cases"]
    published, found = float(row.samples_per_s), [case[key] for key in ("median", "low", "high")]
    speeds, ratios = (_with_interval(*each) for each in (found, [value and value / published for value in found]))
    mark = f" (the machine was busy before {busy} runs)" if busy else ""
    if is_small:
        return f"{speeds} samples/s{mark}, of the demo, which no report has"
    return f"{speeds} samples/s{mark}; {row.recipe}, {row.precision}, {row.world}: {published:g}; ratio {ratios}"


def _with_interval(value: float, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return f"{value:.4g}"
    return f"{value:.4g} ({f'{CONFIDENCE:.0%} interval {low:.4g} to {high:.4g}' if high < WIDE * low else 'too noisy'})"


def _choose(rows: Sequence[Row], arguments: argparse.Namespace) -> Row:
    """Return the first row of a report with the world and the precision that are asked for."""
    names = {row.recipe for row in rows}
    if arguments.report not in names:
        raise UserError(f"there is no report {arguments.report!r}{known_names(arguments.report, tuple(sorted(names)))}")
    own = [row for row in rows if row.recipe == arguments.report]
    found = [
        row for row in own if arguments.world in (None, row.world) and arguments.precision in (None, row.precision)
    ]
    if not found:
        known = ", ".join(f"{row.world} in {row.precision}" for row in own)
        raise UserError(f"{arguments.report} has no such row, but {known}")
    return found[0]


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG, allow_abbrev=False)
    add = parser.add_argument
    add("report", nargs="?", metavar="NAME", help="a recipe of configs/reports; without it: list the rows")
    add(
        "--world", type=lambda text: str(cluster(text)), metavar="HOSTSxPROCESSES", help="of the row; default the first"
    )
    add("--precision", metavar="NAME", help="of the row, such as fp16; default the first")
    add_override_argument(parser, "change one key of the recipe, such as -o data.root=/data/k400; repeatable")
    add("--hosts", metavar="A,B", help="for zoo launch, if a world has several hosts")
    add("--out", metavar="DIR", help="folder of the runs; default results/NAME")
    add("-n", "--repeats", type=count, metavar="N", help="runs; default 5")
    add("--drop", type=count, metavar="N", help="updates before the clock starts; default the report's, or 20")
    add("--count", type=count, metavar="N", help="updates that are timed; default 100")
    add("--small", action="store_true", help="take the steps with the demo of the same model")
    return parser
