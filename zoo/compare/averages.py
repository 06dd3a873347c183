"""Check of the moving average of weights and statistics (zoo/optim/ema.py) against its formula."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.optim.ema import Ema, moved
from zoo.trainer import numpy_ops
from zoo.trainer.state import EMA_PREFIX

ROUNDING = 16  # largest deviation that rounding alone explains, in units of the precision and of the largest term
FIT = 1e-4  # largest relative deviation of a rate that fits a hypothesis
State = Mapping[str, np.ndarray]
Deviations = dict[str, dict[str, Any]]


def rate_of(spec: Ema, applied: int) -> float:
    """Return the share of the weights in update `applied`, counted from 1 without those that were skipped."""
    return float(spec.rate(numpy_ops, np.float64(applied)))


def check(spec: Ema, before: State, after: State, precision: float, applied: int) -> Deviations:
    """Compare the averages after an update with the formula.

    Args:
        spec: decay and warm-up.
        before, after: state dicts around the update.
        precision: rounding unit of the arithmetic, such as 2**-52.
        applied: number of the update without those that were skipped, from 1.

    Returns:
        By name, of the averages that deviate: `deviation`, relative to the largest value, and `cause`, in words.
    """
    rate = rate_of(spec, applied) if float(after["scaler/skipped"]) == float(before["scaler/skipped"]) else 0.0
    found = {key: _deviation(spec, key, before, after, rate, precision) for key in after if key.startswith(EMA_PREFIX)}
    return {key.removeprefix(EMA_PREFIX): deviation for key, deviation in found.items() if deviation}


def _deviation(
    spec: Ema, key: str, before: State, after: State, rate: float, precision: float
) -> dict[str, Any] | None:
    weight = np.asarray(after[key.removeprefix(EMA_PREFIX)], np.float64)
    old, new = np.asarray(before[key], np.float64), np.asarray(after[key], np.float64)
    largest = float(max(np.abs(array).max(initial=0) for array in (weight, old, new)))
    error = float(np.abs(new - moved(old, weight, rate)).max(initial=0))
    if error <= ROUNDING * precision * largest:
        return None
    return {"deviation": error / largest, "cause": _cause(spec, rate, weight - old, new - old)}


def _cause(spec: Ema, rate: float, way: np.ndarray, step: np.ndarray) -> str:
    """Return what explains a step of the average on the way to the weight."""
    power = float(np.square(way).sum())
    found = float((way * step).sum()) / power if power else 0.0
    if power and np.abs(step - found * way).max() > FIT * np.abs(way).max():
        return ""
    if rate == 0:
        return "it changes although the update was skipped"
    causes = {
        "it stays as it was": 0.0,
        "it is a copy of what it averages": 1.0,
        "decay and 1 - decay are swapped": 1 - rate,
        "there is no warm-up": spec.last_rate,
    }
    close = (cause for cause, other in causes.items() if abs(found - other) <= FIT * rate)
    return next(close, f"its rate is {found:.6g} instead of {rate:.6g}")
