"""Results of several runs: mean, median and speed-up of each case, as DLPerf's scripts compute and write them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.bench.extraction.names import LogName

BASE = "1n1g"
Runs = Mapping[str, Mapping[str, Mapping[int, float]]]  # model -> case -> run -> samples per second
Result = dict[str, dict[str, Any]]  # model -> case -> average_speed, batch_size_per_device, median_speed, speedup


def group(speeds: Sequence[tuple[LogName, float | None]]) -> Runs:
    """Sort the speeds of runs by model and case; runs without a speed are left out."""
    runs: dict[str, dict[str, dict[int, float]]] = {}
    for name, speed in speeds:
        if speed is not None:
            runs.setdefault(name.model, {}).setdefault(name.case, {})[name.run] = speed
    return runs


def result(runs: Runs, batches: Mapping[tuple[str, str], int]) -> Result:
    """Compute the JSON that the scripts write.

    Args:
        runs: speeds of all runs.
        batches: samples per card by model and case.

    Returns:
        All numbers rounded to two decimals. Without a run on one card there are no medians, and as the scripts do it,
        the average is that of the last run, all speed-ups are 1, and an empty case 1n1g appears.
    """
    return {model: _cases(model, cases, batches) for model, cases in runs.items()}


def _cases(
    model: str, cases: Mapping[str, Mapping[int, float]], batches: Mapping[tuple[str, str], int]
) -> dict[str, Any]:
    base = _median(cases[BASE]) if BASE in cases else None
    table: dict[str, Any] = {}
    for case, runs in cases.items():
        batch = batches[model, case]
        if base:
            median = _median(runs)
            average = round(sum(runs.values()) / len(runs), 2)
            table[case] = {
                "average_speed": average,
                "batch_size_per_device": batch,
                "median_speed": median,
                "speedup": round(median / base, 2),
            }
        else:
            last = round(list(runs.values())[-1], 2)
            table[case] = {"average_speed": last, "batch_size_per_device": batch, "speedup": 1.0}
    if BASE not in table:
        table[BASE] = {"average_speed": {}}
    return table


def _median(runs: Mapping[int, float]) -> float:
    return round(float(np.median(list(runs.values()))), 2)
