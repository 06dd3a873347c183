"""Guesses at the cause of a difference, from its pattern: each is a hypothesis that fits the numbers exactly."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

FIT = 1e-6  # largest relative deviation of numbers that fit a hypothesis
UNEXPLAINED = 1e-2  # largest share of the difference that a hypothesis leaves
TINY = 1e-300
NOT_FINITE = "it is not finite"
MAX_NAMES = 3  # that a sentence has


def of_activation(reference: np.ndarray, suspect: np.ndarray, factors: Mapping[str, float]) -> str:
    """Guess why an activation or an output differs.

    Args:
        reference, suspect: excerpts (N, C, ...) of the same tensor.
        factors: by name, which a slip may leave out or apply twice.

    Returns:
        A clause, "" if no hypothesis fits.
    """
    if reference.shape != suspect.shape:
        return f"the shape is {suspect.shape} instead of {reference.shape}"
    if not np.isfinite(suspect).all():
        return NOT_FINITE
    if np.array_equal(reference, suspect):  # what differs is not in the excerpts
        return ""
    hypotheses: list[Callable[[np.ndarray, np.ndarray], str]] = [
        lambda r, s: _factor(r, s, factors),
        _relu,
        _order_of_channels,
        _time,
        _border,
        _normalization,
    ]
    return next((guess for guess in (hypothesis(reference, suspect) for hypothesis in hypotheses) if guess), "")


def of_gradient(reference: np.ndarray, suspect: np.ndarray, factors: Mapping[str, float]) -> str:
    """Guess why a gradient differs."""
    if not np.isfinite(suspect).all():
        return NOT_FINITE
    return _factor(reference, suspect, factors)


def _factor(reference: np.ndarray, suspect: np.ndarray, factors: Mapping[str, float]) -> str:
    factor = fit_factor(reference, suspect)
    if factor is None or f"{factor:.6g}" == "1":
        return ""
    return "it is 0" if factor == 0 else named_factor(factor, factors) or f"it is {factor:.6g} times the others'"


def named_factor(factor: float, factors: Mapping[str, float]) -> str:
    for name, value in factors.items():
        if value not in (0, 1) and close(factor, value):
            return f"it is {factor:.6g} times the others': {name}"
    return ""


def _relu(reference: np.ndarray, suspect: np.ndarray) -> str:
    tolerance = _tolerance(reference, suspect)
    if _equal(np.maximum(reference, 0), suspect, tolerance):
        return "a ReLU that the others do not have"
    if _equal(reference, np.maximum(suspect, 0), tolerance):
        return "a ReLU is missing"
    return ""


def _order_of_channels(reference: np.ndarray, suspect: np.ndarray) -> str:
    if reference.ndim < 3 or not 1 < reference.shape[1] <= 4096:
        return ""
    places: dict[tuple[str, ...], list[int]] = {}
    for i in reversed(range(reference.shape[1])):
        places.setdefault(_fingerprint(reference[:, i]), []).append(i)
    found = [places.get(_fingerprint(suspect[:, i])) for i in range(suspect.shape[1])]
    order = [same.pop() for same in found if same]  # some may be equal, such as those that a ReLU makes 0
    if len(order) < suspect.shape[1] or order == sorted(order):
        return ""
    return f"the channels are in another order: {some([str(i) for i in order])}"


def _fingerprint(values: np.ndarray) -> tuple[str, ...]:
    return tuple(f"{number:.6e}" for number in (values.sum(), np.abs(values).sum(), np.square(values).sum()))


def _time(reference: np.ndarray, suspect: np.ndarray) -> str:
    """Find channels that are those of another row, which are frames of a video."""
    if reference.ndim != 4 or len(reference) < 4:
        return ""
    tolerance = _tolerance(reference, suspect)
    differs = np.flatnonzero(np.abs(reference - suspect).max((0, 2, 3)) > tolerance)
    if not 0 < len(differs) < reference.shape[1]:
        return ""
    for offset in (1, 2):
        later, earlier = reference[offset:], reference[:-offset]
        for title, source, target in (("later", later, suspect[:-offset]), ("earlier", earlier, suspect[offset:])):
            same = np.abs(source - target).max((2, 3)) <= tolerance
            if same[:, differs].mean(0).max() > 0.5:
                return (
                    f"channels {differs[0]} to {differs[-1]}, some of them as the others' {offset} frame(s) {title}: "
                    "direction or size of the temporal shift"
                )
    return f"only channels {differs[0]} to {differs[-1]} differ"


def _border(reference: np.ndarray, suspect: np.ndarray) -> str:
    """Find differences at the edges of an image only."""
    if reference.ndim != 4 or min(reference.shape[2:]) < 5:
        return ""
    tolerance = _tolerance(reference, suspect)
    apart = (np.abs(reference - suspect) > tolerance).any((0, 1))
    if apart.any() and not apart[2:-2, 2:-2].any():
        return "only the border differs: padding"
    height, width = reference.shape[2:]
    inner = suspect[:, :, 2:-2, 2:-2]
    for dy, dx in sorted(itertools.product(range(-2, 3), repeat=2), key=lambda shift: sum(map(abs, shift))):
        if _equal(reference[:, :, 2 + dy : height - 2 + dy, 2 + dx : width - 2 + dx], inner, tolerance):
            return f"it is shifted by {max(abs(dy), abs(dx))} pixel(s): padding"
    return ""


def _normalization(reference: np.ndarray, suspect: np.ndarray) -> str:
    """Find a factor and an offset per channel."""
    if reference.ndim < 2 or reference.shape[0] * int(np.prod(reference.shape[2:])) < 8:
        return ""
    x = np.moveaxis(reference, 1, 0).reshape(reference.shape[1], -1)
    y = np.moveaxis(suspect, 1, 0).reshape(suspect.shape[1], -1)
    centered = x - x.mean(1, keepdims=True)
    slopes = (centered * y).sum(1) / np.maximum(np.square(centered).sum(1), TINY)
    rest = y - y.mean(1, keepdims=True) - slopes[:, None] * centered
    if np.abs(rest).max() > _tolerance(x, y):
        return ""
    offsets = y.mean(1) - slopes * x.mean(1)
    if np.abs(offsets).max() <= _tolerance(x, y):
        factors = f"{slopes.min():.6g} to {slopes.max():.6g}"
        return f"each channel has a factor ({factors}): epsilon or variance of a normalization"
    if np.abs((slopes - 1)[:, None] * centered).max() <= _tolerance(x, y):
        return "each channel has an offset: a bias"
    return "each channel has a factor and an offset: statistics, weight or bias of a normalization"


def fit_factor(reference: np.ndarray, suspect: np.ndarray, fit: float = FIT) -> float | None:
    """Return k if the suspect is k times the reference, else None."""
    if reference.shape != suspect.shape:
        return None
    x, y = reference.ravel(), suspect.ravel()
    power = float(x @ x)
    if power <= TINY:
        return None
    factor = float(x @ y) / power
    return factor if np.abs(y - factor * x).max() <= _tolerance(x, y, fit) else None


def _tolerance(reference: np.ndarray, suspect: np.ndarray, fit: float = FIT) -> float:
    """Return the largest deviation of numbers that fit a hypothesis, which has to explain even small differences."""
    largest, difference = np.abs(reference).max(), np.abs(reference - suspect).max()
    return float(min(fit * largest, UNEXPLAINED * difference))


def _equal(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    return a.size > 0 and bool(np.abs(a - b).max() <= tolerance) and bool(np.abs(a).max() > 0)


def close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-4 * max(abs(a), abs(b), 1e-12)


def some(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are; "" is the model."""
    more = len(names) - MAX_NAMES
    return ", ".join(name or "the model" for name in names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
