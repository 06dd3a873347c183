"""Report of runs: tables of throughput, scaling, Time2train, accuracy and use of the hardware, and plots."""

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo import program
from zoo.bench import bundle
from zoo.bench.report import logs, plots, results, runs, tables
from zoo.bench.report.plots import Plot
from zoo.bench.report.results import Result
from zoo.bench.report.runs import COUNTED, MIXED, Run, natural
from zoo.bench.report.tables import Table
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.data.errors import UserError, printable, similar_path
from zoo.logs import journal
from zoo.program import count, fraction, positive
from zoo.table import csv_text, terminal_width
from zoo.table import table as lines_of
from zoo.templates import render
from zoo.weights.files import sha256

EPILOG = """\
A PATH is a run's folder, a folder above runs (such as a benchmark matrix), a bundle of zoo publish, which is verified
first, or an AI-Rank log of another project, whose model, framework, cards and precision are read from its name:
pytorch/tsm/log/GPUx8_AMP.log.
docs/benchmarking.md defines the numbers.

examples
  %(prog)s runs/tsm_demo
  %(prog)s runs/tsm_demo --html
  %(prog)s runs/matrix --html report.html --json report.json --csv tables --png plots
  %(prog)s runs/paddle/GPUx8_AMP.log runs/torch/GPUx8_AMP.log --target 0.711 --samples 234619

Exit codes: 0 reported, 2 an error to fix on your side, results that cannot be compared among them."""
TEMPLATE = Path(runs.__file__).with_name("page.html")
WANTED = "; give the folder of a run, a folder above runs, a bundle, or an AI-Rank log"
MAX_VALUES = 6  # of one kind of facts that are listed


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    if arguments.html == "":
        return _write_page(arguments)
    if arguments.html or arguments.png:
        plots.require()
    require_new(arguments.json, "--json")
    found = read(arguments.paths, arguments.target, arguments.samples)
    measured = results.group(found, arguments.peak_tflops)
    warnings = results.check(found, arguments.force)
    warnings += _uncounted(found)
    per_kwh = {key: value for key in ("price", "co2") if (value := getattr(arguments, key))}
    *parts, all_runs = every = tables.build(found, measured, results.ratios(measured), per_kwh)
    sections = [_section(model, found, measured, parts, arguments) for model in _models(found, measured)]
    lines = markdown(warnings, sections, all_runs)
    content = {"warnings": warnings, "tables": {table.name: table.rows for table in every}}
    print_report(lines, content, arguments.json)
    try:
        for table in every if arguments.csv else ():
            if table.rows:
                write(os.path.join(arguments.csv, f"{table.name}.csv"), csv_text(table.rows, list(table.rows[0])))
        for plot in (plot for section in sections for plot in section.plots) if arguments.png else ():
            os.makedirs(arguments.png, exist_ok=True)
            plot.png(os.path.join(arguments.png, f"{plot.name}.png"))
        if arguments.html:
            write(arguments.html, render(TEMPLATE, warnings=warnings, sections=sections, runs=all_runs))
    except OSError as error:
        raise UserError(f"{error.filename2 or error.filename} cannot be written: {error.strerror}") from None
    return 0


def _write_page(arguments: argparse.Namespace) -> int:
    for path in arguments.paths:
        if not os.path.exists(path):
            raise UserError(f"{path} does not exist{similar_path(path) or WANTED}")
    if len(arguments.paths) != 1 or not os.path.isdir(arguments.paths[0]):
        raise UserError("--html: without a file it writes the page of a run; name the folder of one, or a FILE")
    from zoo.visualization.page import write_page  # and what evaluates, which tables do without

    print(f"written: {write_page(Path(arguments.paths[0]))}")
    return 0


class Section(NamedTuple):
    """The part of a report about one model."""

    title: str  # name of the model
    facts: Sequence[str]  # lines about how it was measured
    tables: Sequence[Table]  # those that have rows
    plots: Sequence[Plot] = ()  # in order


def markdown(warnings: Sequence[str], sections: Sequence[Section], runs: Table) -> list[str]:
    lines, width = [f"> {warning}" for warning in warnings], terminal_width()
    for section in sections:
        lines += ["", f"## {section.title}", "", *(f"- {fact}" for fact in section.facts)]
        for table in section.tables:
            lines += ["", f"### {table.title}", "", *lines_of(table.cells, table.titles, markdown=True, width=width)]
    return [*lines, "", "## Runs", "", *lines_of(runs.cells, runs.titles, markdown=True, width=width)]


def facts(runs: Sequence[Run], model: str | None) -> list[str]:
    """Return lines about how the runs of a model were made, several values joined."""
    members = [run for run in runs if run.case.model == model]
    libraries = ("cuda", "cudnn", "nccl", "cann")
    of: dict[str, Callable[[Run], Any]] = {
        "recipe": lambda run: run.case.recipe,
        "protocol": lambda run: run.protocol,
        "data": lambda run: _words(run.facts.get("data"), run.checksum and f"checksum {run.checksum}"),
        "throughput is counted over": lambda run: run.case.counting,
        "target": lambda run: run.target and f"{run.metric or 'main metric'} {100 * run.target:.4g} %",
        "operations of a forward pass": lambda run: (
            run.flops_per_sample and f"{run.flops_per_sample / 1e9:.4g} GFLOP per sample"
        ),
        "device": lambda run: run.case.device if run.facts.get("accelerators") else None,
        "processor": lambda run: run.facts.get("host_cpu"),
        "hosts": lambda run: run.facts.get("host_name"),
        "system": lambda run: run.facts.get("host_os"),
        "driver": lambda run: run.facts.get("host_driver"),
        "libraries": lambda run: _words(*(f"{key} {run.facts[key]}" for key in libraries if key in run.facts)),
        "framework": lambda run: _words(run.case.framework, run.facts.get("framework_version"), comma=" "),
        "commit": lambda run: run.facts.get("commit"),
    }
    lines = {name: _joined(map(value_of, members)) for name, value_of in of.items()}
    return [f"{name}: {value}" for name, value in lines.items() if value]


def _words(*words: Any, comma: str = ", ") -> str:
    return comma.join(str(word) for word in words if word)


def _joined(found: Any) -> str:
    values = sorted({printable(" ".join(str(value).split())) for value in found if value}, key=natural)
    more = f"; and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
    return "; ".join(values[:MAX_VALUES]) + more


def write(path: str, text: str) -> None:
    """Write a file, and the folders above it."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    Path(path).write_text(text, encoding="utf-8", errors="replace")


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="folder of a run, folder above runs, bundle, or AI-Rank log")
    add_json_argument(parser)
    add("--csv", metavar="DIR", help="write a file for each table, with full precision")
    add(
        "--html",
        metavar="FILE",
        nargs="?",
        const="",
        help="write one page with tables and plots, which needs no other file; without FILE the page of one run: "
        "curves, and what its best checkpoint predicts, to RUN/report.html",
    )
    add("--png", metavar="DIR", help="write the plots")
    add("--peak-tflops", type=positive, metavar="T", help="peak of a card or processor in TFLOP/s, for the MFU")
    add("--price", type=positive, metavar="X", help="price of a kWh, for that of the energy of a run")
    add("--co2", type=positive, metavar="G", help="grams of CO2 per kWh, likewise")
    add("--target", type=fraction, metavar="A", help="target of AI-Rank logs, a fraction")
    add("--samples", type=count, metavar="N", help="training samples per epoch of AI-Rank logs, for their throughput")
    add("--force", action="store_true", help="report runs of different protocols together, with a mark")
    return parser


def read(paths: Sequence[str], target: float | None, samples: int | None) -> list[Run]:
    """Read the runs of all paths; one that several of them hold counts once."""
    found: dict[str, Run] = {}
    for path in paths:
        if os.path.isdir(path):
            folders = runs.find(path)
            if not folders:
                raise UserError(f"{path} holds no run: no events.jsonl in it or below it")
            for folder in folders:
                found.setdefault(_digest(folder), runs.read(folder))
        elif os.path.isfile(path) and bundle.is_bundle(path):
            for digest, run in _of_bundle(path).items():
                found.setdefault(digest, run)
        elif os.path.isfile(path):
            found.setdefault(os.path.realpath(path), logs.read(path, target, samples))
        else:
            raise UserError(f"{path} does not exist{similar_path(path) or WANTED}")
    return list(found.values())


def _digest(folder: str) -> str:
    """Return what identifies a run, wherever a copy of it lies."""
    return sha256(os.path.join(folder, journal.FILE))


def _of_bundle(path: str) -> dict[str, Run]:
    """Return the runs of a bundle by their digests. Raises UserError if it does not verify."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = bundle.unpack(path, folder)
        for problem in bundle.verify(manifest, Path(folder)):
            raise UserError(f"{path}: {problem}; see zoo verify {path}")
        names = {f"{path}/{name}": os.path.join(folder, name) for name in manifest["runs"]}
        return {_digest(each): runs.read(each)._replace(path=name) for name, each in names.items()}


def _models(found: Sequence[Run], measured: Sequence[Result]) -> list[str | None]:
    """Return the models in the order of the tables; None for results of one that is not known."""
    with_results = {result.case.model for result in measured}
    ordered = dict.fromkeys(run.case.model for run in sorted(found, key=lambda run: results.order(run.case)))
    return [model for model in ordered if model is not None or model in with_results]


def _section(
    model: str | None,
    found: Sequence[Run],
    measured: Sequence[Result],
    parts: Sequence[tables.Table],
    arguments: argparse.Namespace,
) -> Section:
    shown = [part for part in (table.of(model) for table in parts) if part.rows]
    section = Section(model or "unknown model", facts(found, model), shown)
    if not (arguments.html or arguments.png):
        return section
    members = [run for run in found if run.case.model == model and run.state != MIXED]
    of_model = [result for result in measured if result.case.model == model]
    return section._replace(plots=plots.draw(tables.file_name(model), members, of_model))


def _uncounted(found: Sequence[Run]) -> list[str]:
    """Return warnings about runs that do not count."""
    mixed = sum(run.state == MIXED for run in found)
    unfinished = sum(run.state not in (*COUNTED, MIXED) for run in found)
    problems = ((mixed, "mixed, resumed with other settings, and"), (unfinished, "not complete and"))
    return [
        f"{number} of {len(found)} runs are {problem} left out of the statistics: see Runs"
        for number, problem in problems
        if number
    ]
