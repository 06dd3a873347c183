"""Two sets of runs, case by case: which cases are slower, which are not, and which need more runs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.bench.matrix.records import Key, SpeedRun, speeds
from zoo.bench.matrix.significance import (
    LEAST_RUNS,
    RankTest,
    Verdict,
    holm,
    judge,
    mann_whitney,
    paired_steps,
    signed_rank,
)
from zoo.bench.matrix.statistics import LogRatio, log_ratio


class Row(NamedTuple):
    """Comparison of a case.

    Attributes:
        key: the case.
        runs: number of runs of the older and the newer.
        speeds: their medians in samples/s.
        ratio: newer / older; None if one of them has a single run.
        runs_test: rank test of the runs.
        steps_test: of their steps, with runs as the unit: the share of pairs of steps in which the newer is slower.
        verdict: what follows.
    """

    key: Key
    runs: tuple[int, int]
    speeds: tuple[float, float]
    ratio: LogRatio | None
    p: float | None
    runs_test: RankTest | None
    steps_test: RankTest | None
    verdict: Verdict


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


Runs = Mapping[Key, Sequence[SpeedRun]]


def compare(old: Runs, new: Runs, margin: float, paired: bool) -> Comparison:
    """Compare the cases that both sets have.

    Args:
        old, new: runs by case.
        margin: slowdown that matters, as a fraction.
        paired: whether runs at the same place of both lists belong to the same round.
    """
    notes = [f"{key}: only in the older runs" for key in old if key not in new]
    notes += [f"{key}: only in the newer runs" for key in new if key not in old]
    keys = []
    for key in new:
        if key in old and {run.protocol for run in old[key]} != {run.protocol for run in new[key]}:
            notes.append(f"{key}: the protocols differ ({old[key][0].protocol}, {new[key][0].protocol}): not compared")
        elif key in old:
            keys.append(key)
    tests = [_tests(old[key], new[key], paired) for key in keys]
    adjusted = holm([ratio.p if ratio else 1.0 for ratio, _, _ in tests])
    rows = []
    for key, (ratio, runs_test, steps_test), p in zip(keys, tests, adjusted, strict=True):
        a, b = old[key], new[key]
        count = min(len(a), len(b))
        if ratio and runs_test:
            verdict = judge(ratio, p, runs_test.p, count, paired, margin)
        else:
            verdict = Verdict("cannot tell", LEAST_RUNS[paired])
        medians = float(np.median(speeds(a))), float(np.median(speeds(b)))
        rows.append(Row(key, (len(a), len(b)), medians, ratio, p if ratio else None, runs_test, steps_test, verdict))
    return Comparison(rows, notes, margin, paired)


def lines(comparison: Comparison) -> list[str]:
    """Return a table, and what it says."""
    header = ["case", "runs", "older", "newer", "ratio", "95 % interval", "p", "p of ranks", "slower steps", "verdict"]
    rows = [[str(row.key), *_cells(row, comparison.margin)] for row in comparison.rows]
    text = columns([header, *rows])
    text += [f"not compared: {note}" for note in comparison.notes]
    counts = {name: sum(row.verdict.name == name for row in comparison.rows) for name in _NAMES}
    told = ", ".join(f"{count} {_NAMES[name]}" for name, count in counts.items() if count)
    return [*text, f"{len(comparison.rows)} cases, a slowdown of {comparison.margin:.0%} in question: {told or 'none'}"]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns; the first and the last one are aligned on the left."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON types."""
    cases = []
    for row in comparison.rows:
        interval = None
        if row.ratio:
            interval = [math.exp(row.ratio.value + sign * row.ratio.half_width) for sign in (-1, 1)]
        cases.append(
            {
                **row.key._asdict(),
                "runs": list(row.runs),
                "samples_per_s": list(row.speeds),
                "ratio": math.exp(row.ratio.value) if row.ratio else None,
                "interval": interval,
                "p": row.p,
                "runs_test": row.runs_test._asdict() if row.runs_test else None,
                "steps_test": row.steps_test._asdict() if row.steps_test else None,
                "verdict": row.verdict.name,
                "repeats_needed": row.verdict.repeats,
            }
        )
    return {"margin": comparison.margin, "paired": comparison.paired, "cases": cases, "notes": comparison.notes}


_NAMES = {
    "slower": "slower",
    "faster": "faster",
    "no slowdown": "not slower by as much",
    "cannot tell": "cannot be told",
}


def _tests(
    a: Sequence[SpeedRun], b: Sequence[SpeedRun], paired: bool
) -> tuple[LogRatio | None, RankTest | None, RankTest | None]:
    if min(len(a), len(b)) < 2:
        return None, None, None
    ratio = log_ratio(speeds(a), speeds(b), paired)
    steps_a, steps_b = [run.step_ms for run in a], [run.step_ms for run in b]
    if paired:
        differences = np.log(speeds(b)) - np.log(speeds(a))
        return ratio, signed_rank([float(value) for value in differences]), paired_steps(steps_a, steps_b)
    runs_test = mann_whitney([[speed] for speed in speeds(a)], [[speed] for speed in speeds(b)])
    return ratio, runs_test, mann_whitney(steps_a, steps_b)


def _cells(row: Row, margin: float) -> list[str]:
    cells = ["/".join(map(str, row.runs)), *(f"{speed:.4g}" for speed in row.speeds)]
    verdict = row.verdict.name
    if verdict == "no slowdown":
        verdict = f"no slowdown of {margin:.0%}"
    elif verdict == "cannot tell":
        repeats = row.verdict.repeats
        verdict += f": needs about {repeats} runs of each" if repeats else ": too noisy, more than 100 runs of each"
    if not (row.ratio and row.runs_test and row.steps_test):
        return [*cells, "-", "-", "-", "-", "-", verdict]
    low, high = (math.exp(row.ratio.value + sign * row.ratio.half_width) for sign in (-1, 1))
    cells += [f"{math.exp(row.ratio.value):.3f}", f"{low:.3f} to {high:.3f}", f"{row.p:.3f}"]
    return [*cells, f"{row.runs_test.p:.3f}", f"{row.steps_test.share:.0%}", verdict]
