"""How far the updates of two devices or two frameworks are apart."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, np.ndarray]
STATISTICS = (".running_mean", ".running_var")


class Tolerance(NamedTuple):
    """Relative difference of a loss, and of what an update adds to the weights or to the running statistics."""

    loss: float
    update: float


# Measured with the models of update_probe.py on a CPU, loss and update: two frameworks in fp32 differ by at most 7e-7
# and 5e-5; fp16 from fp32 in the same framework by 1e-3 and 0.03, bf16 by 7e-3 and 0.1. A layer that is not updated, or
# another kernel than the right one, changes the update by its own size.
TOLERANCES = {"fp32": Tolerance(1e-4, 1e-3), "fp16": Tolerance(0.01, 0.2), "bf16": Tolerance(0.05, 0.4)}


class Update(NamedTuple):
    """One update of a model: loss, norm of the gradient and number of skipped updates; tensors before and after it."""

    numbers: dict[str, Any]
    before: Arrays
    after: Arrays


def load(numbers: dict[str, Any], path: Path) -> Update:
    """Read what update_probe.py wrote of a model."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    parts = [
        {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        for prefix in ("before/", "after/")
    ]
    return Update(numbers, *parts)


def defect(update: Update) -> str | None:
    """Return what is wrong with an update by itself; None if it is as it should be."""
    if any(update.numbers.get(name) is None for name in ("loss", "grad_norm")):
        return "its loss or gradient is not finite"
    if update.numbers.get("skipped"):
        return "the update was skipped"
    broken = next((name for name, array in update.after.items() if not np.isfinite(array).all()), None)
    if broken:
        return f"{broken} is not finite after the update"
    weights = [name for name in update.after if not name.endswith(STATISTICS)]
    if all(np.array_equal(update.before[name], update.after[name]) for name in weights):
        return "the update changed no weight"
    return None


def difference(update: Update, expected: Update) -> Tolerance:
    """Return the relative differences of two updates that began with the same weights and batch; inf if they did not.

    That of the tensors is the norm of the difference over the norm of the update, of all weights together and of all
    running statistics together: a single tensor, whose gradient may be nothing but rounding, does not count by itself.
    """
    loss, right = update.numbers["loss"], expected.numbers["loss"]
    groups: tuple[list[str], list[str]] = ([], [])
    for name in expected.after:
        groups[name.endswith(STATISTICS)].append(name)
    same = update.after.keys() == expected.after.keys() and all(
        np.array_equal(array, expected.before[name]) for name, array in update.before.items()
    )
    if not same:
        return Tolerance(math.inf, math.inf)
    shares = [_share(update, expected, names) for names in groups if names]
    return Tolerance(abs(loss - right) / max(abs(right), 1e-12), max(shares))


def _share(update: Update, expected: Update, names: list[str]) -> float:
    """Return the norm of the difference of tensors relative to the norm of their expected change."""
    apart = change = 0.0
    for name in names:
        after, right = (each.after[name].astype(np.float64) for each in (update, expected))
        apart += float(((after - right) ** 2).sum())
        change += float(((right - expected.before[name].astype(np.float64)) ** 2).sum())
    return math.sqrt(apart / max(change, 1e-30))
