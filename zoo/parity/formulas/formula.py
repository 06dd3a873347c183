"""A computation in numpy with options, and the search for the options that give some numbers."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

FIT = 1e-6  # largest deviation of numbers that fit, relative to the largest of them
UNEXPLAINED = 0.05  # largest share of the difference that options leave
CHANGES = 2  # number of options in which the suspect differs from the reference, at most
FEW = 8  # numbers that some value of an option always gives
STEPS = 12  # of the search for a number
SAMPLE = 1 << 14  # elements that are computed in the search
REFERENCES = 4  # combinations of options that give the reference and are tried for the suspect
TRIES = 4000  # combinations of options that are computed, at most


class Number(NamedTuple):
    """Values of an option that is a number, and solved for.

    Attributes:
        starts: the usual values, the most frequent first.
        low, high: the interval in which it lies.
    """

    starts: tuple[float, ...]
    low: float = 0.0
    high: float = float("inf")


Options = Mapping[str, "Sequence[Any] | Number"]  # values of each option, the most frequent first
Settings = Mapping[str, Any]  # a value of each option


class Case(NamedTuple):
    """What is known of one call of a layer.

    Attributes:
        kind: names of its classes.
        params: parameters and running statistics by role (weight, bias, running_mean, running_var), as in PyTorch.
        reference, suspect: both outputs.
        target: the output that is to be computed, whose shape layers need that are given the size of their output.
    """

    kind: str
    inputs: Sequence[np.ndarray]
    params: Mapping[str, np.ndarray]
    reference: np.ndarray
    suspect: np.ndarray
    training: bool = False
    target: np.ndarray = np.empty(0)


class Formula(NamedTuple):
    """A computation with options.

    Attributes:
        options: of a case; None if its shapes are not those of this computation.
        compute: returns the output of a case with a value for each option; None if its shape would be another.
        sample: returns a case with fewer elements, of which the output is the same part.
    """

    name: str
    options: Callable[[Case], Options | None]
    compute: Callable[..., np.ndarray | None]
    sample: Callable[[Case], Case] = lambda case: case


class Change(NamedTuple):
    """An option in which a suspect differs from a reference."""

    formula: str
    option: str
    reference: Any
    suspect: Any


def changes(formula: Formula, case: Case) -> list[Change]:
    """Return the options that make the difference between reference and suspect, [] if none do."""
    options = formula.options(case)
    if options is None:
        return []
    small = formula.sample(case)
    difference = float("inf")
    if case.reference.shape == case.suspect.shape:
        difference = float(np.nanmax(np.abs(small.reference - small.suspect), initial=0.0))
        if not difference and np.array_equal(small.reference, small.suspect, equal_nan=True):
            small, difference = case, float(np.nanmax(np.abs(case.reference - case.suspect), initial=0.0))
    start = {name: values.starts[0] if isinstance(values, Number) else values[0] for name, values in options.items()}
    for ours in itertools.islice(fitting(formula, small, small.reference, options, start, 3, difference), REFERENCES):
        for theirs in fitting(formula, small, small.suspect, options, ours, CHANGES, difference):
            both = [(case.reference, ours), (case.suspect, theirs)]
            if theirs != ours and all(_holds(formula, case, *side) for side in both):
                return [
                    Change(formula.name, name, ours[name], theirs[name])
                    for name in options
                    if not _equal(ours[name], theirs[name])
                ]
            break
    return []


def fitting(
    formula: Formula,
    case: Case,
    target: np.ndarray,
    options: Options,
    start: Settings,
    most: int,
    difference: float = float("inf"),
) -> Iterator[Settings]:
    """Yield settings that give an array, those with the fewest changes first."""
    finite = np.isfinite(target)
    largest = float(np.abs(target[finite]).max(initial=0.0))
    if not largest:
        return
    tolerance = min(FIT * largest, UNEXPLAINED * difference)
    compute = partial(_computed, formula, case._replace(target=target))
    for settings in itertools.islice(_near(options, start, most), TRIES):
        free = {name: options[name] for name, value in settings.items() if isinstance(value, Number)}
        if not free:
            if _deviation(compute(settings), target) <= tolerance:
                yield settings
        elif len(free) <= 2:
            values = _solved(compute, settings, free, target, tolerance)
            if values is not None:
                yield {**settings, **values}


def _near(options: Options, start: Settings, most: int) -> Iterator[Settings]:
    """Yield settings in the order of their number of changes; a Number stands for a value to solve for."""
    others = {
        name: [values] if isinstance(values, Number) else [value for value in values if not _equal(value, start[name])]
        for name, values in options.items()
    }
    for count in range(most + 1):
        for names in itertools.combinations(others, count):
            for values in itertools.product(*(others[name] for name in names)):
                yield {**start, **dict(zip(names, values))}


def _solved(
    compute: Callable[[Settings], np.ndarray | None],
    settings: Settings,
    free: Mapping[str, Any],
    target: np.ndarray,
    tolerance: float,
) -> Settings | None:
    """Return the numbers that give an array, as someone would write them; None if none do.

    They are found by the Gauss-Newton method.
    """
    for start in itertools.product(*(number.starts for number in free.values())):
        values, last = dict(zip(free, start)), float("inf")
        best = values
        for _ in range(STEPS):
            result = compute({**settings, **values})
            deviation = _deviation(result, target)
            if result is None or not deviation < 0.9 * last:
                break
            best, last = values, deviation
            if not deviation:
                break
            slopes = _slopes(compute, settings, values, result)
            if not all(slope.any() for slope in slopes):
                break
            steps = np.linalg.lstsq(np.stack(slopes, 1), _finite(target - result).ravel(), rcond=None)[0]
            values = {
                name: float(np.clip(values[name] + step, free[name].low, free[name].high))
                for name, step in zip(free, steps)
            }
        if last > tolerance and target.size > FEW:
            continue
        zeros = {name: 0.0 for name, number in free.items() if not number.low}
        if len(zeros) == 1 and _deviation(compute({**settings, **best, **zeros}), target) <= 2 * last:
            best = {**best, **zeros}  # it is below rounding
        for written in _as_written(best, target.size > FEW):
            if _deviation(compute({**settings, **written}), target) <= tolerance:
                return written
    return None


def _slopes(
    compute: Callable[[Settings], np.ndarray | None], settings: Settings, values: Settings, result: np.ndarray
) -> list[np.ndarray]:
    """Return the derivative of an output with respect to each of some numbers."""
    slopes = []
    for name, value in values.items():
        nudge = 1e-3 * value or 1e-6
        nudged = compute({**settings, **values, name: value + nudge})
        slopes.append(_finite((nudged - result) / nudge).ravel() if nudged is not None else np.zeros(result.size))
    return slopes


def _as_written(values: Settings, is_any: bool) -> Iterator[Settings]:
    """Yield numbers with one digit, two, three; then, if they may be any, the same in fp32 and all of their digits."""
    for digits in (1, 2, 3):
        yield {name: float(f"{value:.{digits}g}") for name, value in values.items()}
    if is_any:
        for digits in (1, 2, 3):
            yield {name: float(np.float32(f"{value:.{digits}g}")) for name, value in values.items()}
        yield values


def _computed(formula: Formula, case: Case, settings: Settings) -> np.ndarray | None:
    with np.errstate(all="ignore"):
        return formula.compute(case, **settings)


def _holds(formula: Formula, case: Case, target: np.ndarray, settings: Settings) -> bool:
    """Return whether settings that were found in a sample give all numbers."""
    small = formula.sample(case)
    if small is case or small.reference.size == case.reference.size:
        return True
    result = _computed(formula, case._replace(target=target), settings)
    return _deviation(result, target) <= FIT * float(np.nanmax(np.abs(target)))


def _deviation(result: np.ndarray | None, target: np.ndarray) -> float:
    """Return the largest deviation; infinite for another shape or where only one of both is finite."""
    if result is None or result.shape != target.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        apart = np.abs(result - target)
    finite = np.isfinite(apart)
    same = (result == target) | (np.isnan(result) & np.isnan(target))
    return float(apart[finite].max(initial=0.0)) if (finite | same).all() else float("inf")


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, 0.0)


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def rows(case: Case) -> Case:
    """Return the first rows of a case whose rows along the first axis are computed apart from each other."""
    x = case.inputs[0]
    count = max(1, min(len(x), SAMPLE * len(x) // max(case.reference.size, x.size, 1)))
    return case._replace(
        inputs=[other[:count] if other.ndim and len(other) == len(x) else other for other in case.inputs],
        reference=case.reference[:count],
        suspect=case.suspect[:count],
    )


def is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f"
