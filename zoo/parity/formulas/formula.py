"""A computation in numpy with options, and the search for the options that give some numbers."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

FIT = 1e-6  # largest deviation of numbers that fit, relative to the largest of them
FITS = {"fp32": 2e-5}  # the same where both sides have another precision
UNEXPLAINED = 0.05  # largest share of the difference that options leave
CHANGES = 2  # number of options in which the suspect differs from the reference, at most
FEW = 8  # numbers that some value of an option always gives
FREE = 3  # numbers that are solved for together
ROUNDING = 1e-13  # deviation that needs no explanation
LEAST_SHARE = 0.01  # of a step of the search for a number
ENOUGH = 0.9  # share of the distance that a step of it may leave
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
        fit: largest deviation of numbers that fit, relative to the largest of them.
    """

    kind: str
    inputs: Sequence[np.ndarray]
    params: Mapping[str, np.ndarray]
    reference: np.ndarray
    suspect: np.ndarray
    training: bool = False
    target: np.ndarray = np.empty(0)
    fit: float = FIT


class Formula(NamedTuple):
    """A computation with options.

    Attributes:
        options: of a case; None if its shapes are not those of this computation.
        compute: returns the output of a case with a value for each option; None if its shape would be another.
        kinds: a pattern of the names of classes that compute this.
        sample: returns a case with fewer elements, of which the output is the same part.
    """

    name: str
    options: Callable[[Case], Options | None]
    compute: Callable[..., np.ndarray | None]
    kinds: str
    sample: Callable[[Case], Case] = lambda case: case


class Change(NamedTuple):
    """An option in which a suspect differs from a reference; settings: all options of the reference."""

    formula: str
    option: str
    reference: Any
    suspect: Any
    settings: Mapping[str, Any] = {}


def changes(formula: Formula, case: Case) -> list[Change]:
    """Return the options that make the difference between reference and suspect, [] if none do."""
    options = formula.options(case)
    if options is None:
        return []
    small = formula.sample(case)
    difference = float("inf")
    if case.reference.shape == case.suspect.shape:
        difference = float(np.nanmax(np.abs(small.reference - small.suspect), initial=0.0))
        if np.array_equal(small.reference, small.suspect, equal_nan=True):
            return []
    start = {name: values.starts[0] if isinstance(values, Number) else values[0] for name, values in options.items()}
    most = 3 if any(isinstance(values, Number) for values in options.values()) else len(options)
    for ours in _best(fitting(formula, small, small.reference, options, start, most, difference), start)[:REFERENCES]:
        ways = _best(fitting(formula, small, small.suspect, options, ours, CHANGES, difference), ours)
        theirs = ways[0] if ways else ours
        both = [(case.reference, ours), (case.suspect, theirs)]
        if theirs != ours and all(_holds(formula, case, *side) for side in both):
            names = _changed(ours, theirs)
            if len(names) > 1:  # without those that change nothing by themselves, such as the kind of a decay of 0
                fits = {name: _fits(formula, case, case.reference, {**ours, name: theirs[name]}) for name in names}
                names = [name for name in names if not fits[name]] or names
            return [Change(formula.name, name, ours[name], theirs[name], ours) for name in names]
    return []


def _best(ways: Iterator[tuple[Settings, float]], start: Settings) -> list[Settings]:
    """Return the settings with the fewest changes, those that fit best first."""
    found: list[tuple[Settings, float]] = []
    for settings, deviation in ways:
        if found and len(_changed(start, settings)) > len(_changed(start, found[0][0])):
            break
        found.append((settings, deviation))
    least = min((deviation for _, deviation in found), default=0.0)
    found.sort(key=lambda way: way[1] > 10 * least + ROUNDING)
    return [settings for settings, _ in found]


def _changed(a: Settings, b: Settings) -> list[str]:
    return [name for name in a if not _equal(a[name], b[name])]


def fitting(
    formula: Formula,
    case: Case,
    target: np.ndarray,
    options: Options,
    start: Settings,
    most: int,
    difference: float = float("inf"),
) -> Iterator[tuple[Settings, float]]:
    """Yield settings that give an array, those with the fewest changes first, and how far they are from it.

    Args:
        start: from which changes are counted.
        difference: to another array, of which they have to explain most.
    """
    finite = np.isfinite(target)
    largest = float(np.abs(target[finite]).max(initial=0.0))
    if not largest:
        return
    tolerance = min(case.fit * largest, UNEXPLAINED * difference)
    compute = partial(_computed, formula, case._replace(target=target))
    for settings in itertools.islice(_near(options, start, most), TRIES):
        free = {name: options[name] for name, value in settings.items() if isinstance(value, Number)}
        if len(free) > FREE:
            continue
        values = _solved(compute, settings, free, target, tolerance) if free else {}
        deviation = _deviation(compute({**settings, **values}), target) if values is not None else np.inf
        if deviation <= tolerance:
            yield {**settings, **(values or {})}, deviation


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
    """Return the numbers that give an array, as someone would write them; None if none do."""
    starts = [dict(zip(free, start)) for start in itertools.product(*(number.starts for number in free.values()))]
    values: Settings = min(starts, key=lambda start: _distance(compute({**settings, **start}), target))
    values = _improved(compute, settings, free, target, values)
    last = _deviation(compute({**settings, **values}), target)
    if not np.isfinite(last) or (last > tolerance and target.size > FEW):
        return None
    zeros = {name: 0.0 for name, number in free.items() if not number.low}
    if len(zeros) == 1 and _deviation(compute({**settings, **values, **zeros}), target) <= 2 * last:
        values = {**values, **zeros}  # it is below rounding
    is_any = target.size > FEW
    limit = min(tolerance, max(4 * last, ROUNDING)) if is_any else tolerance
    for written in _as_written(values, is_any):
        if _deviation(compute({**settings, **written}), target) <= limit:
            return written
    return None


def _improved(
    compute: Callable[[Settings], np.ndarray | None],
    settings: Settings,
    free: Mapping[str, Any],
    target: np.ndarray,
    best: Settings,
) -> Settings:
    """Return the numbers that give an array nearest to another, by the Gauss-Newton method."""
    share, last = 1.0, _distance(compute({**settings, **best}), target)
    while last and np.isfinite(last) and share > LEAST_SHARE:
        result = compute({**settings, **best})
        slopes = _slopes(compute, settings, best, result) if result is not None else []
        if not slopes or not all(slope.any() for slope in slopes):
            break
        steps = np.linalg.lstsq(np.stack(slopes, 1), _finite(target - result).ravel(), rcond=None)[0]
        while share > LEAST_SHARE:
            nearer = {
                name: float(np.clip(best[name] + share * step, free[name].low, free[name].high))
                for name, step in zip(free, steps)
            }
            distance = _distance(compute({**settings, **nearer}), target)
            if distance < ENOUGH * last:
                best, last, share = nearer, distance, 1.0
                break
            share /= 4  # of a step that went too far
    return best


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
    """Yield numbers with one digit, two, three, the same in fp32, and, if they may be any, all of their digits."""
    for digits in (1, 2, 3):
        yield {name: float(f"{value:.{digits}g}") for name, value in values.items()}
    for digits in (1, 2, 3):
        yield {name: float(np.float32(f"{value:.{digits}g}")) for name, value in values.items()}
    if is_any:
        yield values


def _computed(formula: Formula, case: Case, settings: Settings) -> np.ndarray | None:
    with np.errstate(all="ignore"), suppress(ValueError):  # of shapes that some options do not fit
        return formula.compute(case, **settings)
    return None


def _holds(formula: Formula, case: Case, target: np.ndarray, settings: Settings) -> bool:
    """Return whether settings that were found in a sample give all numbers."""
    small = formula.sample(case)
    if small is case or small.reference.size == case.reference.size:
        return True
    return _fits(formula, case, target, settings)


def _fits(formula: Formula, case: Case, target: np.ndarray, settings: Settings) -> bool:
    result = _computed(formula, case._replace(target=target), settings)
    return _deviation(result, target) <= case.fit * float(np.nanmax(np.abs(target)))


def _deviation(result: np.ndarray | None, target: np.ndarray) -> float:
    """Return the largest deviation; infinite for another shape or where only one of both is finite."""
    if result is None or result.shape != target.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        apart = np.abs(result - target)
    finite = np.isfinite(apart)
    same = (result == target) | (np.isnan(result) & np.isnan(target))
    return float(apart[finite].max(initial=0.0)) if (finite | same).all() else float("inf")


def _distance(result: np.ndarray | None, target: np.ndarray) -> float:
    if result is None or not np.isfinite(_deviation(result, target)):
        return float("inf")
    return float(np.linalg.norm(_finite(result - target)))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, 0.0)


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def rows(case: Case) -> Case:
    """Return some rows of a case whose rows along the first axis are computed apart from each other."""
    x = case.inputs[0]
    count = max(1, min(len(x), SAMPLE * len(x) // max(case.reference.size, x.size, 1)))
    first = min(of_difference(case)[0], len(x) - count)
    some = slice(first, first + count)
    return case._replace(
        inputs=[other[some] if other.ndim and len(other) == len(x) else other for other in case.inputs],
        reference=case.reference[some],
        suspect=case.suspect[some],
    )


def of_difference(case: Case) -> tuple[int, ...]:
    """Return the index of the largest difference, which a sample holds; of the first element for two shapes."""
    a, b = case.reference, case.suspect
    if a.shape != b.shape or not a.size:
        return (0,) * a.ndim
    return tuple(map(int, np.unravel_index(np.argmax(np.nan_to_num(np.abs(a - b))), a.shape)))


def is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f"


def is_unary(case: Case) -> bool:
    """Return whether a case has one input, of floats, and no parameters."""
    return len(case.inputs) == 1 and not case.params and is_float(case.inputs[0])
