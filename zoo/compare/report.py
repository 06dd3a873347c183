"""Loss curves of a comparison for people, as a table and a plot."""

import io
import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError, parsing

WARMUP_STEPS = 3  # left out of the timing: compilers and allocators
EPS = 1e-30

Rows = dict[str, list["Row"]]  # title of a framework -> its steps


class Row(NamedTuple):
    """One step of one framework. batch: checksum of the training batch; seconds: of the update alone."""

    step: int
    lr: float
    loss: float
    grad_norm: float
    skipped: float
    seconds: float
    batch: int


def load(path: str) -> tuple[dict[str, Any], list[Row]]:
    """Read the header and the steps of <framework>.jsonl."""
    problem = f"{path} cannot be read as results of an earlier comparison"
    with parsing(problem, "compare again"), open(path, encoding="utf-8") as file:
        header, *rows = [json.loads(line) for line in file]
        return header, [Row(**row) for row in rows]


def relative_difference(values: Sequence[float]) -> float:
    """Compute the largest difference between any two, relative to the largest magnitude; inf if one is not finite."""
    if not all(np.isfinite(values)):
        return float("inf")
    return (max(values) - min(values)) / max(max(map(abs, values)), EPS)


def print_steps(rows: Rows) -> None:
    """Print a table of the losses and gradient norms of every step, with their largest relative differences."""
    names = list(rows)
    width = max(11, *(len(name) + 2 for name in names))
    columns = "".join(f"{name:>{width}}" for name in names)
    print(f"\n      loss{' ' * (width * len(names) - 4)}            gradient norm")
    print(f"step{columns}  difference{columns}  difference")
    for step in zip(*rows.values()):
        if len({row.batch for row in step}) > 1:
            raise UserError(
                f"step {step[0].step}: the frameworks were given different batches; check that they read the "
                "same data set with the same seed"
            )
        losses, norms = [row.loss for row in step], [row.grad_norm for row in step]
        print(
            f"{step[0].step:4}"
            + "".join(f"{value:{width}.6f}" for value in losses)
            + f"{relative_difference(losses):12.1e}"
            + "".join(f"{value:{width}.5g}" for value in norms)
            + f"{relative_difference(norms):12.1e}"
        )


def print_speeds(headers: Mapping[str, Mapping[str, Any]], rows: Rows) -> None:
    """Print the median time of a step and the samples per second of each framework."""
    for name, values in rows.items():
        header, seconds = headers[name], statistics.median([row.seconds for row in values[WARMUP_STEPS:] or values])
        print(
            f"{name}: {header['compute']} on {header['device']}, {seconds * 1e3:.1f} ms per step (median), "
            f"{header['global_batch'] / seconds:.1f} samples/s; the first step took {values[0].seconds:.1f} s"
        )


def problems_of(rows: Rows, within: int, tolerance: float) -> list[str]:
    """Print the largest differences of the losses.

    Args:
        within: number of steps whose losses must agree.
        tolerance: largest relative difference of a loss.

    Returns:
        A sentence if the losses do not agree.
    """
    differences = [relative_difference([row.loss for row in step]) for step in zip(*rows.values())]
    checked = differences[:within]
    if len(rows) < 2 or not checked:
        return []
    print(
        f"largest relative difference of the loss: {max(checked):.1e} over the first {len(checked)} steps, "
        f"{max(differences):.1e} over all {len(differences)}"
    )
    if max(checked) <= tolerance:
        return []
    step = next(number for number, value in enumerate(differences, 1) if not value <= tolerance)
    return [f"the losses differ by more than {tolerance:g} from step {step} on"]


def plot(rows: Rows) -> bytes:
    """Draw losses and gradient norms over the steps as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True)
    for number, (name, values) in enumerate(rows.items()):
        steps, style = [row.step for row in values], ("-", "--", ":")[number % 3]
        axes[0].plot(steps, [row.loss for row in values], style, label=name)
        axes[1].plot(steps, [row.grad_norm for row in values], style, label=name)
    axes[0].set_ylabel("loss")
    axes[1].set_ylabel("gradient norm")
    axes[1].set_xlabel("step")
    axes[0].legend()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120)
    return file.getvalue()
