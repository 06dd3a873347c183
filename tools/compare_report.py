"""The report of tools/compare.py: losses step by step, tensors after one update, speeds, a verdict and a plot."""

import importlib.util
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from data.errors import UserError
from zoo.weights import files
from zoo.weights.match import match_state_dict

WARMUP_STEPS = 3  # left out of the timing: compilers and allocators
MAX_LISTED = 3  # tensors
GRADIENT_TOLERANCE = 0.1  # relative, in L2, of a tensor's first gradient; rounding alone has made 0.01
# Values that are 0 but for rounding, such as the mean of normalized activations, or the gradient of a bias before a
# normalization, are not compared relative to themselves:
MIN_DIFFERENCE = 1e-6  # a difference of a weight or statistic that always passes
MIN_GRADIENT_SHARE = 1e-5  # of the norm of all gradients: the least that a tensor's gradient is compared relative to
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


class TensorGroup(NamedTuple):
    """Tensors that are compared alike.

    Attributes:
        title: for the screen.
        matches: whether a name belongs to the group.
        difference: of two arrays.
        tolerance: the largest difference that passes.
    """

    title: str
    matches: Callable[[str], bool]
    difference: Callable[[np.ndarray, np.ndarray], float]
    tolerance: float


def load(path: str) -> tuple[dict[str, Any], list[Row]]:
    """Read the header and the steps of <framework>.jsonl.

    Raises:
        UserError: the file is missing or not of a comparison.
    """
    try:
        with open(path, encoding="utf-8") as file:
            header, *rows = [json.loads(line) for line in file]
        return header, [Row(**row) for row in rows]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read as results of an earlier comparison: {error}") from None


def relative_difference(values: Sequence[float]) -> float:
    """Compute the largest difference between any two, relative to the largest magnitude; inf if one is not finite."""
    if not all(np.isfinite(values)):
        return float("inf")
    return (max(values) - min(values)) / max(max(map(abs, values)), EPS)


def print_steps(rows: Rows) -> None:
    """Print a table of the losses and gradient norms of every step, with their largest relative differences.

    Raises:
        UserError: the frameworks were trained on different batches.
    """
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


def compare_tensors(sources: Sequence[tuple[str, str]], tolerance: float) -> list[str]:
    """Print which tensors differ most after one update.

    Weights, statistics and outputs are compared by the largest difference relative to the largest value, class maps by
    the share of differing pixels, momenta (which still are the gradients) by the relative L2 norm of the difference.

    Args:
        sources: title and path without suffix of each framework.
        tolerance: of weights, statistics and outputs.

    Returns:
        A sentence for each tensor that differs by more than its tolerance, MAX_LISTED per group.

    Raises:
        UserError: the frameworks do not train the same tensors.
    """
    dumps = {name: files.read(stem + "-step1.safetensors")[0] for name, stem in sources}
    (first, reference), *others = dumps.items()
    if not others:
        return []
    shapes = {key: array.shape for key, array in reference.items()}
    for name, dump in others:
        if {key: array.shape for key, array in dump.items()} != shapes:
            raise UserError(f"{first} and {name} do not train the same tensors:\n{match_state_dict(dump, shapes)}")
    problems: list[str] = []
    for group in _groups(reference, tolerance):
        differences = {
            key: max(group.difference(array, dump[key]) for _, dump in others)
            for key, array in reference.items()
            if group.matches(key)
        }
        largest = sorted(differences, key=lambda key: differences[key], reverse=True)[:MAX_LISTED]
        listed = ", ".join(f"{key.rpartition('/')[2]} {differences[key]:.1e}" for key in largest)
        print(f"after one update, {group.title} that differ most: {listed}")
        problems += [
            f"after one update, {key} differs by {differences[key]:.1e}"
            for key in largest
            if not differences[key] <= group.tolerance
        ]
    return problems


def _groups(reference: Mapping[str, np.ndarray], tolerance: float) -> list[TensorGroup]:
    min_magnitude = MIN_DIFFERENCE / tolerance if tolerance else 0.0  # so that MIN_DIFFERENCE just passes
    gradients = [array for key, array in reference.items() if key.startswith("momentum/")]
    min_norm = MIN_GRADIENT_SHARE * math.hypot(*map(_norm, gradients))
    return [
        TensorGroup(
            "weights and statistics",
            lambda key: "/" not in key,
            partial(_max_difference, min_magnitude=min_magnitude),
            tolerance,
        ),
        TensorGroup(
            "gradients",
            lambda key: key.startswith("momentum/"),
            partial(_l2_difference, min_norm=min_norm),
            GRADIENT_TOLERANCE,
        ),
        TensorGroup("outputs in an evaluation", lambda key: key.startswith("evaluation/"), _max_difference, tolerance),
    ]


def _max_difference(a: np.ndarray, b: np.ndarray, min_magnitude: float = 0.0) -> float:
    if a.dtype == np.uint8:  # classes of pixels: the share that differs
        return float((a != b).mean())
    return float(np.abs(a - b).max() / max(np.abs(a).max(), np.abs(b).max(), min_magnitude, EPS))


def _l2_difference(a: np.ndarray, b: np.ndarray, min_norm: float) -> float:
    return _norm(a - b) / max(_norm(a), _norm(b), min_norm, EPS)


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def print_speeds(headers: Mapping[str, Mapping[str, Any]], rows: Rows) -> None:
    """Print the median time of a step and the samples per second of each framework."""
    for name, values in rows.items():
        header, seconds = headers[name], statistics.median([row.seconds for row in values[WARMUP_STEPS:] or values])
        print(
            f"{name}: {header['compute']} on {header['device']}, {seconds * 1e3:.1f} ms per step (median), "
            f"{header['global_batch'] / seconds:.1f} samples/s; the first step took {values[0].seconds:.1f} s"
        )


def print_verdict(rows: Rows, within: int, tolerance: float, problems: Sequence[str]) -> int:
    """Print whether losses and tensors agree.

    Args:
        rows: the steps of each framework.
        within: number of steps whose losses must agree.
        tolerance: largest relative difference of a loss.
        problems: of the tensors.

    Returns:
        0 if they agree, 1 if not.
    """
    if len(rows) < 2:
        print("only one framework: nothing to compare it with")
        return 0
    differences = [relative_difference([row.loss for row in step]) for step in zip(*rows.values())]
    checked = differences[:within]
    print(
        f"largest relative difference of the loss: {max(checked):.1e} over the first {len(checked)} steps, "
        f"{max(differences):.1e} over all {len(differences)}"
    )
    problems = list(problems)
    if max(checked) > tolerance:
        step = next(number for number, value in enumerate(differences, 1) if value > tolerance)
        problems.append(f"the losses differ by more than {tolerance:g} from step {step} on")
    for problem in problems:
        print(f"they do not agree: {problem}")
    if not problems:
        print(f"they agree within {tolerance:g}")
    return 1 if problems else 0


def plot(rows: Rows, path: str) -> bool:
    """Draw losses and gradient norms over the steps; return False, without a file, if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6), layout="constrained")
    for number, (name, values) in enumerate(rows.items()):
        steps, style = [row.step for row in values], ("-", "--", ":")[number % 3]
        axes[0].plot(steps, [row.loss for row in values], style, label=name)
        axes[1].plot(steps, [row.grad_norm for row in values], style, label=name)
    axes[0].set_ylabel("loss")
    axes[1].set_ylabel("gradient norm")
    axes[1].set_xlabel("step")
    axes[0].legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
