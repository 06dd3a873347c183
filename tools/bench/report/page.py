"""A report as Markdown, and as one HTML page without scripts and without references to other files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.report.plots import Plot
from zoo.bench.report.runs import Run, natural
from zoo.bench.report.tables import Table
from zoo.bench.templates import render
from zoo.table import table as lines_of

TEMPLATE = Path(__file__).with_name("page.html")
MAX_VALUES = 6  # of one kind of facts that are listed


class Section(NamedTuple):
    """The part of a report about one model.

    Attributes:
        title: name of the model.
        facts: lines about how it was measured.
        tables: those that have rows.
        plots: in order.
    """

    title: str
    facts: Sequence[str]
    tables: Sequence[Table]
    plots: Sequence[Plot] = ()


def markdown(warnings: Sequence[str], sections: Sequence[Section], runs: Table) -> list[str]:
    """Return the lines of a report in Markdown: warnings, sections by model, and a table of all runs."""
    lines = [f"> {warning}" for warning in warnings]
    for section in sections:
        lines += ["", f"## {section.title}", "", *(f"- {fact}" for fact in section.facts)]
        for table in section.tables:
            lines += ["", f"### {table.title}", "", *lines_of(table.cells, table.titles, markdown=True)]
    return [*lines, "", "## Runs", "", *lines_of(runs.cells, runs.titles, markdown=True)]


def html(title: str, warnings: Sequence[str], sections: Sequence[Section], runs: Table) -> str:
    """Return a report as a page. Raises UserError if Jinja is not installed."""
    return render(TEMPLATE, title=title, warnings=warnings, sections=sections, runs=runs)


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
    values = sorted({str(value) for value in found if value}, key=natural)
    more = f"; and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
    return "; ".join(values[:MAX_VALUES]) + more
