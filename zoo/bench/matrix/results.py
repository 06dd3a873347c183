"""Measurements of a matrix, and comparisons of two sets of runs: rows of JSON's types, and printed lines."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.bench.matrix.cases import BASE, Case, recorded_matrix
from zoo.bench.report import runs
from zoo.bench.report.runs import COMPLETE, Run
from zoo.bench.statistics import (
    CONFIDENCE,
    LEAST_RUNS,
    WIDE,
    SpeedChange,
    holm,
    interval,
    judge,
    log_ratio,
    rank_test,
    summarize,
)
from zoo.data import durable
from zoo.data.errors import UserError
from zoo.table import csv_text, table

Runs = Mapping[str, Sequence[Run]]  # by the title of their case
Row = dict[str, Any]
UNITS = {
    "median, mean, least, most, low, high": "samples/s over all processes",
    "low, high": f"{CONFIDENCE:.0%} confidence interval of the median, by the bootstrap over runs and Student's t",
    "cv": "sample standard deviation / mean of the runs; median_cv: the same of the median",
    "p50, p90, p99": "medians over the runs of the quantiles of a run's step times, milliseconds",
    "data_wait": "share of the time in which the loop waited for data, median over the runs",
}
STATISTICS = ("median", "low", "high", "mean", "least", "most", "cv", "median_cv")
OF_RUNS = ("p50", "p90", "p99", "data_wait")
RUN_VALUES = ("samples_per_s", *OF_RUNS, "host_memory", "device_memory")
VERDICTS = {  # of a comparison -> as they are counted
    "slower": "slower",
    "faster": "faster",
    "no slowdown": "not slower by as much",
    "cannot tell": "cannot be told",
}


class Outcome(NamedTuple):
    runs: Mapping[int, Run]  # complete runs by number
    reason: str | None = None  # why it has none, or no further ones; None if there is no reason
    is_skipped: bool = False  # whether it was never started

    @property
    def status(self) -> str:
        return "skipped" if self.is_skipped else "failed" if self.reason else "done"

    @property
    def values(self) -> Row:
        """The statistics of the runs, and medians over them; None without runs."""
        found = list(self.runs.values())
        if not found:
            return dict.fromkeys((*STATISTICS, *OF_RUNS))
        summary = summarize(speeds_of(found))
        middle = {name: statistics.median(getattr(run.values, name) for run in found) for name in OF_RUNS}
        return {name: getattr(summary, name) for name in STATISTICS} | middle


def save(folder: Path, outcomes: Mapping[Case, Outcome], busy_runs: int) -> None:
    """Write results.json and results.csv; busy_runs: how many began while the machine was busy."""
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
    durable.write(str(folder / "results.csv"), csv_text(cases, list(cases[0])).encode())
    for row, outcome in zip(cases, outcomes.values()):
        row["runs"] = [
            {"run": number, "folder": run.path, **{name: getattr(run.values, name) for name in RUN_VALUES}}
            for number, run in outcome.runs.items()
        ]
    content = {"units": UNITS, "runs_on_a_busy_machine": busy_runs, "cases": cases}
    durable.write(str(folder / "results.json"), (json.dumps(content, indent=1) + "\n").encode())


def outcome_lines(outcomes: Mapping[Case, Outcome]) -> list[str]:
    """Return the lines of a table of the cases that have runs, then those that have failed or were skipped."""
    header = ["case", "runs", "samples/s", "95 % interval", "mean", "cv", "step p50", "p99 ms", "data wait", "remark"]
    rows = [_outcome_cells(case, outcome) for case, outcome in outcomes.items() if outcome.runs]
    text = table(rows, header) if rows else []
    text += [f"failed: {case}: {o.reason}" for case, o in outcomes.items() if o.status == "failed" and not o.runs]
    return text + skipped_lines({case: o.reason or "" for case, o in outcomes.items() if o.is_skipped})


def skipped_lines(reasons: Mapping[Case, str]) -> list[str]:
    """Return the lines that name skipped cases, those of the same reason together."""
    text: list[str] = []
    for reason in dict.fromkeys(reasons.values()):
        text += [f"skipped: {reason}", *(f"  {case}" for case in reasons if reasons[case] == reason)]
    return text


def _outcome_cells(case: Case, outcome: Outcome) -> list[str | None]:
    values = outcome.values
    low, high = values["low"], values["high"]
    limits = None
    if low is not None:
        limits = f"{low:.4g} to {high:.4g}" if high < WIDE * low else "too noisy"
    return [
        str(case),
        str(len(outcome.runs)),
        f"{values['median']:.4g}",
        limits,
        f"{values['mean']:.4g}",
        None if values["cv"] is None else f"{values['cv']:.1%}",
        f"{values['p50']:.4g}",
        f"{values['p99']:.4g}",
        f"{values['data_wait']:.0%}",
        f"failed: {outcome.reason}" if outcome.reason else "",
    ]


def read_folder(folder: Path, option: str) -> Runs:
    """Read all speed runs below a folder: of a matrix, a part of one, or a run."""
    matrix = recorded_matrix(folder)
    if matrix and matrix.get("variants"):
        raise UserError(f"{option} {folder}: this matrix has variants; name one of them, such as {folder / BASE}")
    found = by_title(map(runs.read, runs.find(str(folder))))
    if not found:
        raise UserError(f"{option} {folder}: there is no complete speed run below it (train.py --speed)")
    return found


def by_title(found: Iterable[Run]) -> Runs:
    """Return complete speed runs by the title of their case, by their journals."""
    titles: dict[str, list[Run]] = {}
    for run in found:
        if run.state == COMPLETE and run.values.step_ms:
            case = run.case
            world = f"{case.nodes}x{(case.cards or 0) // (case.nodes or 1)}"
            title = f"{case.recipe} {case.framework} {case.precision} {world} batch {case.batch}"
            titles.setdefault(title, []).append(run)
    return titles


def compare(old: Runs, new: Runs, margin: float, paired: bool) -> Row:
    """Compare the cases that both sets have; the result has JSON's types.

    The ratio is newer / older; None if one of them has a single run. `p` is adjusted for the number of cases.

    Args:
        margin: slowdown that matters, as a fraction.
        paired: whether runs at the same place of both lists belong to the same round.
    """
    notes = [f"{title}: only in the older runs" for title in old if title not in new]
    notes += [f"{title}: only in the newer runs" for title in new if title not in old]
    titles = []
    for title in (title for title in new if title in old):
        if {run.protocol for run in old[title]} == {run.protocol for run in new[title]}:
            titles.append(title)
        else:
            names = f"{old[title][0].protocol}, {new[title][0].protocol}"
            notes.append(f"{title}: the protocols differ ({names}): not compared")
    pairs = [(speeds_of(old[title]), speeds_of(new[title])) for title in titles]
    ratios = [log_ratio(*pair, paired) if min(map(len, pair)) > 1 else None for pair in pairs]
    adjusted = holm([ratio.p if ratio else 1.0 for ratio in ratios])
    rows: list[Row] = []
    for title, pair, ratio, p in zip(titles, pairs, ratios, adjusted):
        rank_p, verdict = None, SpeedChange("cannot tell", LEAST_RUNS[paired])
        if ratio:
            rank_p = rank_test(*pair, paired)
            verdict = judge(ratio, p, rank_p, min(map(len, pair)), paired, margin)
        rows.append(
            {
                "case": title,
                "runs": [len(speeds) for speeds in pair],
                "samples_per_s": [statistics.median(speeds) for speeds in pair],
                "ratio": math.exp(ratio.value) if ratio else None,
                "interval": interval(math.exp(ratio.value), ratio.half_width) if ratio else None,
                "p": p if ratio else None,
                "rank_p": rank_p,
                "verdict": verdict.name,
                "repeats_needed": verdict.repeats,
            }
        )
    return {"margin": margin, "paired": paired, "cases": rows, "notes": notes}


def comparison_lines(found: Row) -> list[str]:
    """Return a table, and what it says."""
    header = ["case", "runs", "older", "newer", "ratio", "95 % interval", "p", "p of ranks", "verdict"]
    text = table([_comparison_cells(row, found["margin"]) for row in found["cases"]], header)
    text += [f"not compared: {note}" for note in found["notes"]]
    counts = {name: sum(row["verdict"] == name for row in found["cases"]) for name in VERDICTS}
    summary = ", ".join(f"{count} {VERDICTS[name]}" for name, count in counts.items() if count)
    return [*text, f"{len(found['cases'])} cases, a slowdown of {found['margin']:.0%} in question: {summary}"]


def speeds_of(found: Iterable[Run]) -> list[float]:
    """Return the samples per second of runs."""
    return [run.values.samples_per_s or 0.0 for run in found]


def _comparison_cells(row: Row, margin: float) -> list[str | None]:
    cells: list[str | None] = [row["case"], "/".join(map(str, row["runs"]))]
    cells += [f"{speed:.4g}" for speed in row["samples_per_s"]]
    verdict, repeats = row["verdict"], row["repeats_needed"]
    if verdict == "no slowdown":
        verdict = f"no slowdown of {margin:.0%}"
    elif verdict == "cannot tell":
        verdict += f": needs about {repeats} runs of each" if repeats else ": too noisy, more than 100 runs of each"
    if row["ratio"] is None:
        return [*cells, *[None] * 4, verdict]
    low, high = row["interval"]
    p, rank_p = (f"{row[key]:.3f}" for key in ("p", "rank_p"))
    return [*cells, f"{row['ratio']:.3f}", f"{low:.3f} to {high:.3f}", p, rank_p, verdict]
