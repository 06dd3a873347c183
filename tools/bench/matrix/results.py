"""What a matrix has measured: results.json, results.csv and a table."""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.matrix import records
from zoo.bench.matrix.cases import Case
from zoo.bench.matrix.comparison import columns
from zoo.bench.matrix.folder import write
from zoo.bench.matrix.records import SpeedRun
from zoo.bench.matrix.statistics import CONFIDENCE, Summary, summarize

UNITS = {
    "median, mean, least, most, low, high": "samples/s over all processes",
    "low, high": f"{CONFIDENCE:.0%} confidence interval of the median, by the bootstrap over runs and Student's t",
    "cv": "sample standard deviation / mean of the runs; median_cv: the same of the median",
    "step_ms": "medians over the runs of the quantiles of a run's step times, milliseconds",
    "data_wait": "share of the time in which the loop waited for data, median over the runs",
}
WIDE = 4.0  # an interval whose ends differ by this factor says nothing; the files have it nevertheless
STATISTICS = ("median", "low", "high", "mean", "least", "most", "cv", "median_cv")
QUANTILES = ("p50", "p90", "p99")


class Outcome(NamedTuple):
    """What is known about a case.

    Attributes:
        runs: complete runs by number.
        reason: why it has none, or no further ones; None if there is no reason.
        is_skipped: whether it was never started.
    """

    runs: Mapping[int, SpeedRun]
    reason: str | None = None
    is_skipped: bool = False

    @property
    def status(self) -> str:
        return "skipped" if self.is_skipped else "failed" if self.reason else "done"


def save(folder: Path, outcomes: Mapping[Case, Outcome], busy_runs: int) -> None:
    """Write results.json and results.csv.

    Args:
        folder: of the matrix.
        outcomes: of all cases.
        busy_runs: runs before which the machine was busy.
    """
    cases = [_as_json(case, outcome) for case, outcome in outcomes.items()]
    content = {"units": UNITS, "runs_on_a_busy_machine": busy_runs, "cases": cases}
    write(folder / "results.json", json.dumps(content, indent=1) + "\n")
    text = io.StringIO()
    flat = [_flat(case) for case in cases]
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    write(folder / "results.csv", text.getvalue())


def table(outcomes: Mapping[Case, Outcome]) -> list[str]:
    """Return the lines of a table of the cases that have runs, then those that have failed or were skipped."""
    header = ["case", "runs", "samples/s", "95 % interval", "mean", "cv", "step p50", "p99 ms", "data wait", "remark"]
    rows = [_row(case, outcome) for case, outcome in outcomes.items() if outcome.runs]
    lines = columns([header, *rows]) if rows else []
    lines += [f"failed: {case}: {o.reason}" for case, o in outcomes.items() if o.status == "failed" and not o.runs]
    return lines + skipped_lines({case: o.reason or "" for case, o in outcomes.items() if o.is_skipped})


def skipped_lines(reasons: Mapping[Case, str]) -> list[str]:
    """Return the lines that name skipped cases, those of the same reason together."""
    lines: list[str] = []
    for reason in dict.fromkeys(reasons.values()):
        lines += [f"skipped: {reason}", *(f"  {case}" for case in reasons if reasons[case] == reason)]
    return lines


def _row(case: Case, outcome: Outcome) -> list[str]:
    runs = list(outcome.runs.values())
    summary = summarize(records.speeds(runs))
    interval = "-"
    if summary.low is not None and summary.high is not None:
        is_telling = summary.high < WIDE * summary.low
        interval = f"{summary.low:.4g} to {summary.high:.4g}" if is_telling else "too noisy"
    cv = "-" if summary.cv is None else f"{summary.cv:.1%}"
    middle = _middle(runs)
    return [
        str(case),
        str(summary.runs),
        f"{summary.median:.4g}",
        interval,
        f"{summary.mean:.4g}",
        cv,
        f"{middle['p50']:.4g}",
        f"{middle['p99']:.4g}",
        f"{middle['data_wait']:.0%}",
        f"failed: {outcome.reason}" if outcome.reason else "",
    ]


def _middle(runs: Sequence[SpeedRun]) -> dict[str, float]:
    """Return medians over the runs."""
    return {name: statistics.median(getattr(run, name) for run in runs) for name in (*QUANTILES, "data_wait")}


def _as_json(case: Case, outcome: Outcome) -> dict[str, Any]:
    runs = list(outcome.runs.values())
    summary: Summary | None = summarize(records.speeds(runs)) if runs else None
    middle = _middle(runs) if runs else {}
    return {
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
        "count": len(runs),
        **{name: getattr(summary, name) if summary else None for name in STATISTICS},
        "step_ms": {name: middle.get(name) for name in QUANTILES},
        "data_wait": middle.get("data_wait"),
        "runs": [{"run": number, **records.as_json(run)} for number, run in outcome.runs.items()],
    }


def _flat(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case as a row of the CSV file, without its runs."""
    row = {key: value for key, value in case.items() if key not in ("step_ms", "runs")}
    return {**row, **{f"step_ms_{name}": case["step_ms"][name] for name in QUANTILES}}
