"""What a matrix has measured: results.json, results.csv and a table."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.matrix.cases import Case
from zoo.bench.matrix.folder import write
from zoo.bench.report.runs import Run
from zoo.bench.statistics import CONFIDENCE, summarize
from zoo.table import csv_text, table

UNITS = {
    "median, mean, least, most, low, high": "samples/s over all processes",
    "low, high": f"{CONFIDENCE:.0%} confidence interval of the median, by the bootstrap over runs and Student's t",
    "cv": "sample standard deviation / mean of the runs; median_cv: the same of the median",
    "p50, p90, p99": "medians over the runs of the quantiles of a run's step times, milliseconds",
    "data_wait": "share of the time in which the loop waited for data, median over the runs",
}
WIDE = 4.0  # an interval whose ends differ by this factor says nothing; the files have it nevertheless
STATISTICS = ("median", "low", "high", "mean", "least", "most", "cv", "median_cv")
OF_RUNS = ("p50", "p90", "p99", "data_wait")
RUN_VALUES = ("samples_per_s", *OF_RUNS, "host_memory", "device_memory")


class Outcome(NamedTuple):
    """What is known about a case.

    Attributes:
        runs: complete runs by number.
        reason: why it has none, or no further ones; None if there is no reason.
        is_skipped: whether it was never started.
    """

    runs: Mapping[int, Run]
    reason: str | None = None
    is_skipped: bool = False

    @property
    def status(self) -> str:
        return "skipped" if self.is_skipped else "failed" if self.reason else "done"

    @property
    def values(self) -> dict[str, Any]:
        """The statistics of the runs, and medians over them; None without runs."""
        found = list(self.runs.values())
        if not found:
            return dict.fromkeys((*STATISTICS, *OF_RUNS))
        summary = summarize([run.values.samples_per_s or 0.0 for run in found])
        middle = {name: statistics.median(getattr(run.values, name) for run in found) for name in OF_RUNS}
        return {name: getattr(summary, name) for name in STATISTICS} | middle


def save(folder: Path, outcomes: Mapping[Case, Outcome], busy_runs: int) -> None:
    """Write results.json and results.csv. busy_runs: before which the machine was busy."""
    cases = [
        {
            "variant": case.variant.name,
            "recipe": case.recipe.name,
            "model": case.recipe.model,
            "framework": case.framework,
            "precision": case.precision,
            "batch": case.batch,
            "hosts": case.world.hosts,
            "processes": case.world.size,
            "status": outcome.status,
            "reason": outcome.reason,
            "count": len(outcome.runs),
            **outcome.values,
        }
        for case, outcome in outcomes.items()
    ]
    write(folder / "results.csv", csv_text(cases, list(cases[0])))
    for case, outcome in zip(cases, outcomes.values()):
        case["runs"] = [
            {"run": number, "folder": run.path, **{name: getattr(run.values, name) for name in RUN_VALUES}}
            for number, run in outcome.runs.items()
        ]
    content = {"units": UNITS, "runs_on_a_busy_machine": busy_runs, "cases": cases}
    write(folder / "results.json", json.dumps(content, indent=1) + "\n")


def lines(outcomes: Mapping[Case, Outcome]) -> list[str]:
    """Return the lines of a table of the cases that have runs, then those that have failed or were skipped."""
    header = ["case", "runs", "samples/s", "95 % interval", "mean", "cv", "step p50", "p99 ms", "data wait", "remark"]
    rows = [_cells(case, outcome) for case, outcome in outcomes.items() if outcome.runs]
    text = table(rows, header) if rows else []
    text += [f"failed: {case}: {o.reason}" for case, o in outcomes.items() if o.status == "failed" and not o.runs]
    return text + skipped_lines({case: o.reason or "" for case, o in outcomes.items() if o.is_skipped})


def skipped_lines(reasons: Mapping[Case, str]) -> list[str]:
    """Return the lines that name skipped cases, those of the same reason together."""
    text: list[str] = []
    for reason in dict.fromkeys(reasons.values()):
        text += [f"skipped: {reason}", *(f"  {case}" for case in reasons if reasons[case] == reason)]
    return text


def _cells(case: Case, outcome: Outcome) -> Sequence[str | None]:
    values = outcome.values
    low, high = values["low"], values["high"]
    interval = None
    if low is not None:
        interval = f"{low:.4g} to {high:.4g}" if high < WIDE * low else "too noisy"
    return [
        str(case),
        str(len(outcome.runs)),
        f"{values['median']:.4g}",
        interval,
        f"{values['mean']:.4g}",
        None if values["cv"] is None else f"{values['cv']:.1%}",
        f"{values['p50']:.4g}",
        f"{values['p99']:.4g}",
        f"{values['data_wait']:.0%}",
        f"failed: {outcome.reason}" if outcome.reason else "",
    ]
