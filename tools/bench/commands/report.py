"""Report of runs: tables of throughput, scaling, Time2train, accuracy and use of the hardware, and plots."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zoo.bench.report import cases, comparability, figures, formats, journals, logs, matrices, page, plots, tables
from zoo.bench.report.cases import Result
from zoo.bench.report.facts import describe
from zoo.bench.report.page import Section
from zoo.bench.report.run import COMPLETE, MIXED, Run
from zoo.bench.report.tables import Table
from zoo.data.errors import UserError

EPILOG = """\
A PATH is a run's folder, a folder above runs (such as a benchmark matrix), or an AI-Rank log of another project, whose
model, framework, cards and precision are read from its name: pytorch/tsm/log/GPUx8_AMP.log. docs/benchmarking.md defines
the numbers.

examples
  python tools/report.py runs/tsm_demo
  python tools/report.py runs/matrix --html report.html --json report.json --csv tables --png plots
  python tools/report.py runs/paddle/GPUx8_AMP.log runs/torch/GPUx8_AMP.log --target 0.711 --samples 234619

Exit codes: 0 reported, 2 an error to fix on your side, results that cannot be compared among them."""


class Report(NamedTuple):
    """A report.

    Attributes:
        runs: all of them.
        results: those of the cases that have a complete run.
        warnings: what a reader has to know.
        tables: of all models.
    """

    runs: Sequence[Run]
    results: Sequence[Result]
    warnings: Sequence[str]
    tables: Sequence[Table]

    @property
    def models(self) -> list[str | None]:
        """The models in the order of the tables; None for results of one that is not known."""
        measured = {result.case.model for result in self.results}
        ordered = dict.fromkeys(run.case.model for run in sorted(self.runs, key=lambda run: cases.order(run.case)))
        return [model for model in ordered if model is not None or model in measured]


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    try:
        if arguments.html or arguments.png:
            figures.require()
        report = build(arguments)
        print("\n".join(markdown(report)))
        write(report, arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="folder of a run, folder above runs, or AI-Rank log")
    add("--markdown", metavar="FILE", help="write the tables, which are printed in any case")
    add("--json", metavar="FILE", help="write all tables with full precision, and DLPerf's JSON")
    add("--csv", metavar="DIR", help="write a file for each table, with full precision")
    add("--html", metavar="FILE", help="write one page with tables and plots, which needs no other file")
    add("--png", metavar="DIR", help="write the plots")
    add("--title", default="Benchmark report", help="heading of the page")
    add("--peak-tflops", type=float, metavar="T", help="peak of a card or processor in TFLOP/s, for the MFU")
    add("--target", type=float, metavar="A", help="target of AI-Rank logs, a fraction")
    add("--samples", type=int, metavar="N", help="training samples per epoch of AI-Rank logs, for their throughput")
    add("--force", action="store_true", help="report runs of different protocols together, with a mark")
    return parser.parse_args(argv)


def build(arguments: argparse.Namespace) -> Report:
    """Read the runs and compute the tables.

    Raises:
        UserError: an argument is wrong, there is nothing to read, or the results cannot be compared.
    """
    for key in ("peak_tflops", "samples", "target"):
        value = getattr(arguments, key)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"--{key.replace('_', '-')}: must be a number above 0, not {value}")
    if arguments.target is not None and arguments.target > 1:
        raise UserError(f"--target: must be a fraction, such as 0.711, not {arguments.target:g}")
    runs = read(arguments.paths, arguments.target, arguments.samples)
    warnings = comparability.check([run for run in runs if run.state == COMPLETE], arguments.force)
    results = cases.group(runs, arguments.peak_tflops)
    warnings += [impossible(result) for result in results if result.mfu and result.mfu > 1]
    mixed = sum(run.state == MIXED for run in runs)
    if mixed:
        warnings.append(
            f"{mixed} of {len(runs)} runs are mixed, resumed with other settings, and left out of the statistics: "
            "see Runs"
        )
    unfinished = [run for run in runs if run.state not in (COMPLETE, MIXED)]
    if unfinished:
        warnings.append(
            f"{len(unfinished)} of {len(runs)} runs are not complete and left out of the statistics: see Runs"
        )
    return Report(runs, results, warnings, tables.build(runs, results, cases.ratios(results)))


def impossible(result: Result) -> str:
    """Return a warning about a result above the peak of its device."""
    case = result.case
    return (
        f"the MFU of {case.model} with {case.framework}, {case.precision}, {case.cards} cards is above 100 %: the peak "
        "does not belong to this device or precision (see --peak-tflops), or the throughput is wrong"
    )


def read(paths: Sequence[str], target: float | None, samples: int | None) -> list[Run]:
    """Read all runs; each folder or log once.

    Raises:
        UserError: a path does not exist, or has no run.
    """
    found: dict[str, Run] = {}
    for path in paths:
        if os.path.isdir(path):
            folders = journals.find(path)
            if not folders:
                raise UserError(f"{path} holds no run: no events.jsonl in it or below it")
            for folder in folders:
                found.setdefault(os.path.realpath(folder), journals.read(folder))
            for root in dict.fromkeys(map(matrices.root_of, folders)):
                for number, run in enumerate(matrices.without_runs(root) if root else ()):
                    found.setdefault(f"{root}: {number}", run)
        elif os.path.isfile(path):
            if path.endswith(".jsonl"):
                raise UserError(f"{path} is the journal of a run; give its folder, {os.path.dirname(path) or '.'}")
            found.setdefault(os.path.realpath(path), logs.read(path, target, samples))
        else:
            raise UserError(f"{path} does not exist; give the folder of a run, a folder above runs, or an AI-Rank log")
    return list(found.values())


def markdown(report: Report) -> list[str]:
    """Return the lines of the report in Markdown."""
    lines = [f"> {warning}" for warning in report.warnings]
    *others, runs = report.tables
    for model in report.models:
        lines += ["", f"## {model or 'unknown model'}", "", *(f"- {fact}" for fact in describe(report.runs, model))]
        for table in (table.of(model) for table in others):
            if table.rows:
                lines += ["", f"### {table.title}", "", *formats.markdown(table)]
    return [*lines, "", "## Runs", "", *formats.markdown(runs.without_empty())]


def write(report: Report, arguments: argparse.Namespace) -> None:
    """Write the files that the arguments ask for.

    Raises:
        UserError: one cannot be written.
    """
    try:
        if arguments.markdown:
            _write(arguments.markdown, "\n".join(markdown(report)) + "\n")
        if arguments.json:
            _write(arguments.json, formats.json_text(report.tables, report.warnings, tables.dlperf(report.runs)))
        for table in report.tables if arguments.csv else ():
            if table.rows:
                _write(os.path.join(arguments.csv, f"{table.name}.csv"), formats.csv_text(table))
        if arguments.html or arguments.png:
            _write_plots(report, arguments)
    except OSError as error:
        raise UserError(f"{error.filename2 or error.filename} cannot be written: {error.strerror}") from None


def _write_plots(report: Report, arguments: argparse.Namespace) -> None:
    *others, runs = report.tables
    sections = []
    for model in report.models:
        members = [run for run in report.runs if run.case.model == model and run.state != MIXED]
        results = [result for result in report.results if result.case.model == model]
        drawn = plots.draw(plots.file_name(model), members, results)
        shown = [part for part in (table.of(model) for table in others) if part.rows]
        sections.append(Section(model or "unknown model", describe(report.runs, model), shown, drawn))
        for plot in drawn if arguments.png else ():
            os.makedirs(arguments.png, exist_ok=True)
            plot.png(os.path.join(arguments.png, f"{plot.name}.png"))
    if arguments.html:
        _write(arguments.html, page.render(arguments.title, report.warnings, sections, runs.without_empty()))


def _write(path: str, text: str) -> None:
    """Write a text file, whole or not at all; its folder is made."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.writing")
    try:
        temporary.write_text(text, encoding="utf-8", errors="replace")
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
