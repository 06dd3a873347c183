"""Two sets of runs, case by case: which cases are slower, which are not, and which need more runs."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.bench.matrix.cases import BASE
from zoo.bench.matrix.folder import recorded_matrix
from zoo.bench.report import runs
from zoo.bench.report.runs import COMPLETE, Run
from zoo.bench.statistics import LEAST_RUNS, LogRatio, Verdict, holm, interval, judge, log_ratio, rank_test
from zoo.data.errors import UserError
from zoo.table import table

Runs = Mapping[str, Sequence[Run]]  # by the title of their case
WORDS = {
    "slower": "slower",
    "faster": "faster",
    "no slowdown": "not slower by as much",
    "cannot tell": "cannot be told",
}


class Row(NamedTuple):
    """Comparison of a case.

    Attributes:
        case: its title.
        runs: number of runs of the older and the newer.
        speeds: their medians in samples/s.
        ratio: newer / older; None if one of them has a single run.
        p: of the ratio, adjusted for the number of cases.
        rank_p: of the rank test of the runs.
        verdict: what follows.
    """

    case: str
    runs: tuple[int, int]
    speeds: tuple[float, float]
    ratio: LogRatio | None
    p: float | None
    rank_p: float | None
    verdict: Verdict

    @property
    def limits(self) -> tuple[float, float] | None:
        """The confidence interval of the ratio."""
        return interval(math.exp(self.ratio.value), self.ratio.half_width) if self.ratio else None


class Comparison(NamedTuple):
    """Comparison of two sets of runs.

    Attributes:
        rows: the cases that both have.
        notes: what could not be compared.
        margin: slowdown that matters, as a fraction.
        paired: whether the runs are compared round by round.
    """

    rows: list[Row]
    notes: list[str]
    margin: float
    paired: bool

    @property
    def regressions(self) -> list[Row]:
        return [row for row in self.rows if row.verdict.name == "slower"]


def read_folder(folder: Path, option: str) -> Runs:
    """Read all speed runs below a folder: of a matrix, a part of one, or a run.

    Raises:
        UserError: there is none, or the folder holds several variants; option: names the folder in messages.
    """
    if not folder.is_dir():
        raise UserError(f"{option} {folder}: there is no such folder")
    matrix = recorded_matrix(folder)
    if matrix and matrix.get("variants"):
        raise UserError(f"{option} {folder}: this matrix has variants; name one of them, such as {folder / BASE}")
    found = by_title(map(runs.read, runs.find(str(folder))))
    if not found:
        raise UserError(f"{option} {folder}: there is no complete speed run below it (train.py --speed)")
    return found


def by_title(found: Any) -> Runs:
    """Return complete speed runs by the title of their case, as their journals tell it."""
    titles: dict[str, list[Run]] = {}
    for run in found:
        if run.state == COMPLETE and run.values.step_ms and run.values.samples_per_s:
            case = run.case
            world = f"{case.nodes}x{(case.cards or 0) // (case.nodes or 1)}"
            titles.setdefault(f"{case.recipe} {case.framework} {case.precision} {world} batch {case.batch}", []).append(
                run
            )
    return titles


def compare(old: Runs, new: Runs, margin: float, paired: bool) -> Comparison:
    """Compare the cases that both sets have.

    Args:
        old, new: runs by case.
        margin: slowdown that matters, as a fraction.
        paired: whether runs at the same place of both lists belong to the same round.
    """
    notes = [f"{title}: only in the older runs" for title in old if title not in new]
    notes += [f"{title}: only in the newer runs" for title in new if title not in old]
    titles = []
    for title in new:
        if title in old and {run.protocol for run in old[title]} != {run.protocol for run in new[title]}:
            names = f"{old[title][0].protocol}, {new[title][0].protocol}"
            notes.append(f"{title}: the protocols differ ({names}): not compared")
        elif title in old:
            titles.append(title)
    rows = [_row(title, old[title], new[title], paired) for title in titles]
    adjusted = holm([row.ratio.p if row.ratio else 1.0 for row in rows])
    for at, (row, p) in enumerate(zip(rows, adjusted)):
        if row.ratio and row.rank_p is not None:
            verdict = judge(row.ratio, p, row.rank_p, min(row.runs), paired, margin)
            rows[at] = row._replace(p=p, verdict=verdict)
    return Comparison(rows, notes, margin, paired)


def lines(comparison: Comparison) -> list[str]:
    """Return a table, and what it says."""
    header = ["case", "runs", "older", "newer", "ratio", "95 % interval", "p", "p of ranks", "verdict"]
    text = table([_cells(row, comparison.margin) for row in comparison.rows], header)
    text += [f"not compared: {note}" for note in comparison.notes]
    counts = {name: sum(row.verdict.name == name for row in comparison.rows) for name in WORDS}
    told = ", ".join(f"{count} {WORDS[name]}" for name, count in counts.items() if count)
    return [*text, f"{len(comparison.rows)} cases, a slowdown of {comparison.margin:.0%} in question: {told or 'none'}"]


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON types."""
    cases = [
        {
            "case": row.case,
            "runs": row.runs,
            "samples_per_s": row.speeds,
            "ratio": math.exp(row.ratio.value) if row.ratio else None,
            "interval": row.limits,
            "p": row.p,
            "rank_p": row.rank_p,
            "verdict": row.verdict.name,
            "repeats_needed": row.verdict.repeats,
        }
        for row in comparison.rows
    ]
    return {"margin": comparison.margin, "paired": comparison.paired, "cases": cases, "notes": comparison.notes}


def _row(title: str, a: Sequence[Run], b: Sequence[Run], paired: bool) -> Row:
    """Return the tests of a case; the verdict is still to be made."""
    speeds_a, speeds_b = ([run.values.samples_per_s or 0.0 for run in found] for found in (a, b))
    medians = float(np.median(speeds_a)), float(np.median(speeds_b))
    unknown = Verdict("cannot tell", LEAST_RUNS[paired])
    if min(len(a), len(b)) < 2:
        return Row(title, (len(a), len(b)), medians, None, None, None, unknown)
    ratio, rank_p = log_ratio(speeds_a, speeds_b, paired), rank_test(speeds_a, speeds_b, paired)
    return Row(title, (len(a), len(b)), medians, ratio, None, rank_p, unknown)


def _cells(row: Row, margin: float) -> list[str | None]:
    cells: list[str | None] = [row.case, "/".join(map(str, row.runs)), *(f"{speed:.4g}" for speed in row.speeds)]
    verdict, repeats = row.verdict
    if verdict == "no slowdown":
        verdict = f"no slowdown of {margin:.0%}"
    elif verdict == "cannot tell":
        verdict += f": needs about {repeats} runs of each" if repeats else ": too noisy, more than 100 runs of each"
    if not (row.ratio and row.limits):
        return [*cells, *[None] * 4, verdict]
    low, high = row.limits
    cells += [f"{math.exp(row.ratio.value):.3f}", f"{low:.3f} to {high:.3f}", f"{row.p:.3f}"]
    return [*cells, f"{row.rank_p:.3f}", verdict]
