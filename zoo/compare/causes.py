"""Guesses at the cause of a difference, from its pattern: each is a hypothesis that fits the numbers exactly."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.compare.formulas import SLIPS
from zoo.losses.segment import IGNORE_INDEX
from zoo.trainer import numpy_ops

FIT = 1e-6  # largest relative deviation of numbers that fit a hypothesis
STATISTIC_FIT = 1e-4  # the same for running statistics, which may come from fp32
UNEXPLAINED = 1e-2  # largest share of the difference that a hypothesis leaves
TINY = 1e-300
DIGITS = 3  # a setting that someone wrote has no more
BATCH_NORM_MOMENTUM = 0.1  # weight of a new batch in the running statistics
Settings = Mapping[str, Any]


def of_activation(reference: np.ndarray, suspect: np.ndarray, settings: Settings) -> str:
    """Guess why an activation or an output differs.

    Args:
        reference, suspect: excerpts (N, C, ...) of the same tensor.

    Returns:
        A clause, "" if no hypothesis fits.
    """
    if reference.shape != suspect.shape:
        return f"the shape is {suspect.shape} instead of {reference.shape}"
    if not np.isfinite(suspect).all():
        return "it is not finite"
    hypotheses: list[Callable[[np.ndarray, np.ndarray], str]] = [
        lambda r, s: _factor(r, s, settings),
        _relu,
        _order_of_channels,
        _time,
        _border,
        _normalization,
    ]
    return next((guess for guess in (hypothesis(reference, suspect) for hypothesis in hypotheses) if guess), "")


def of_loss(reference: float, suspect: float, settings: Settings) -> str:
    """Guess why a loss differs while the model's output is the same."""
    if not np.isfinite([reference, suspect]).all():
        return "it is not finite"
    if "loss_terms" in settings:
        guess = _setting_of_loss(reference, suspect, settings["loss_terms"], settings["task"])
        if guess:
            return guess
    ratio = suspect / reference if reference else float("nan")
    return _named_factor(ratio, settings) or f"it is {ratio:.6g} times the others'"


def loss_terms(logits: Sequence[np.ndarray], labels: np.ndarray) -> dict[str, Any]:
    """Return sums over a batch, of which a cross-entropy is made with any smoothing and weight of auxiliary logits.

    Args:
        logits: of each head, (N, K) or (N, K, H, W).
        labels: (N,) or (N, H, W).

    Returns:
        `heads`: of each head the cross-entropy with the labels and with the uniform distribution; `all` and `valid`,
        the number of all labels and of those that are not ignored.
    """
    ignored = IGNORE_INDEX if labels.ndim > 1 else -1
    valid = labels != ignored
    heads = [
        [
            float(numpy_ops.cross_entropy(head, labels, ignored).sum()),
            float(-numpy_ops.log_softmax(head).mean(1)[valid].sum()),
        ]
        for head in logits
    ]
    return {"heads": heads, "all": int(labels.size), "valid": int(valid.sum())}


def _setting_of_loss(reference: float, suspect: float, sums: Mapping[str, Any], task: Mapping[str, float]) -> str:
    """Guess which setting of a cross-entropy differs. sums: of `loss_terms`; task: settings of the task."""
    if not sums["valid"]:
        return ""
    share = sums["valid"] / sums["all"]
    if share < 1 and _same(suspect, reference * share):
        return "the loss is averaged over all pixels instead of those with a label"
    if share < 1 and _same(suspect, reference / share):
        return "the loss is averaged over the pixels with a label"
    (target, uniform), *auxiliary = sums["heads"]
    for count in {sums["valid"], sums["all"]}:
        if auxiliary and "aux_weight" in task:
            weight, (other, _) = task["aux_weight"], auxiliary[0]
            found = (suspect * count - target) / other
            if _same(reference, (target + weight * other) / count) and _is_another(found, weight):
                return f"the auxiliary loss has the weight {_written(found):g} instead of {weight:g}"
        if not auxiliary and uniform != target:
            smoothing = task.get("label_smoothing", 0.0)
            found = (suspect * count - target) / (uniform - target)
            is_smoothed = _same(reference, ((1 - smoothing) * target + smoothing * uniform) / count)
            if is_smoothed and _is_another(found, smoothing) and 0 <= _written(found) < 1:
                return f"label smoothing is {_written(found):g} instead of {smoothing:g}"
    return ""


def _is_another(value: float, setting: float) -> bool:
    """Return whether a value is one that someone writes, and not the setting itself."""
    return abs(value - _written(value)) <= 1e-6 and _written(value) != setting


def _written(value: float) -> float:
    return round(value, DIGITS) + 0.0  # not -0.0


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def of_gradient(reference: np.ndarray, suspect: np.ndarray, settings: Settings) -> str:
    """Guess why a gradient differs."""
    if not np.isfinite(suspect).all():
        return "it is not finite"
    return _factor(reference, suspect, settings)


def of_statistic(name: str, before: np.ndarray, reference: np.ndarray, suspect: np.ndarray) -> str:
    """Guess why a running mean or variance differs after an update."""
    scale = _fit_factor(reference - before, suspect - before, STATISTIC_FIT)
    if scale is not None:
        return (
            "it has not changed"
            if scale == 0
            else f"the momentum is {round(1 - BATCH_NORM_MOMENTUM * scale, 6) + 0:g} (the old "  # + 0: of -0 it makes 0
            f"value's weight) instead of {1 - BATCH_NORM_MOMENTUM:g}"
        )
    kept = (1 - BATCH_NORM_MOMENTUM) * before
    scale = _fit_factor(reference - kept, suspect - kept, STATISTIC_FIT)
    if name.endswith("running_var") and scale is not None and 0.4 < scale < 2.5 and scale != 1:
        count = 1 / (1 - scale) if scale < 1 else scale / (scale - 1)
        kind = "biased" if scale < 1 else "unbiased"
        return f"the variance of a batch is the {kind} one: of {count:.6g} values, {scale:.6g} times the others'"
    return ""


def of_update(deviations: Mapping[str, Mapping[str, Any]], momentum: float) -> str:
    """Guess why updates do not follow the optimizer's formula."""
    guesses: dict[str, set[str]] = {}
    for name, deviation in deviations.items():
        for guess in _update_guesses(deviation, momentum):
            guesses.setdefault(guess, set()).add(name)
    clauses, left = [], set(deviations)
    while left:  # the guess that explains the most parameters first
        guess = max(guesses, key=lambda guess: len(guesses[guess] & left))
        clauses.append(f"{guess} ({some([name for name in deviations if name in guesses[guess] & left])})")
        left -= guesses[guess]
    return "; ".join(clauses)


def _update_guesses(deviation: Mapping[str, Any], momentum: float) -> list[str]:
    if deviation["frozen"]:
        return ["a frozen parameter is updated"]
    if deviation["slot"]:
        return [f"the optimizer's {deviation['slot']} does not follow its formula"]
    sentences = {
        "nesterov": lambda factor: "Nesterov momentum",
        "lr": lambda factor: f"the learning rate is {_rounded(factor)} times the expected one",
        "momentum": lambda factor: f"the momentum is {_rounded(factor * momentum)} instead of {momentum:g}",
        "decay": lambda factor: f"the weight decay is {_rounded(factor)} instead of {deviation['decay']:g}",
        "gradient": lambda factor: f"the gradient is {_rounded(factor)} times the expected one: clipping or scaling",
        "dampening": lambda factor: f"gradient and decay are added to the momentum {_rounded(factor)} times: dampening",
    }
    guesses = [SLIPS.get(kind) or sentences[kind](factor) for kind, factor in deviation["factors"].items()]
    return guesses or ["the update is not a sum of gradient, decay and momentum"]


def _factor(reference: np.ndarray, suspect: np.ndarray, settings: Settings) -> str:
    factor = _fit_factor(reference, suspect)
    if factor is None:
        return ""
    return "it is 0" if factor == 0 else _named_factor(factor, settings) or f"it is {factor:.6g} times the others'"


def _named_factor(factor: float, settings: Settings) -> str:
    for name, value in _known_factors(settings):
        if value not in (0, 1) and _close(factor, value):
            return f"it is {factor:.6g} times the others': {name}"
    return ""


def _known_factors(settings: Settings) -> Iterator[tuple[str, float]]:
    dropout, samples, accumulate = settings["dropout"], settings["samples"], settings["accumulate"]
    yield "dropout is not divided by 1 - p", 1 - dropout
    yield "dropout is divided by 1 - p twice", 1 / (1 - dropout)
    yield "the mean over samples is taken twice", 1 / samples
    yield "a sum over samples instead of their mean", float(samples)
    yield "a mean over micro-batches is taken twice", 1 / accumulate
    yield "a sum over micro-batches instead of their mean", float(accumulate)
    yield "the sign", -1.0
    yield "pixels of 0 to 255 instead of 0 to 1", 255.0
    for key, value in settings["task"].items():
        yield f"task.{key}", float(value)
        yield f"1 / task.{key}", 1 / value if value else 0.0


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
    by_sum = {tuple(_fingerprint(reference[:, i])): i for i in range(reference.shape[1])}
    order = [by_sum.get(tuple(_fingerprint(suspect[:, i]))) for i in range(suspect.shape[1])]
    if None in order or order == sorted(order) or len(set(order)) < len(order):  # type: ignore[type-var]
        return ""
    return f"the channels are in another order: {some([str(i) for i in order])}"


def _fingerprint(values: np.ndarray) -> list[str]:
    return [f"{number:.6e}" for number in (values.sum(), np.abs(values).sum(), np.square(values).sum())]


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
    return "each channel has a factor and an offset: statistics, weight or bias of a normalization"


def _fit_factor(reference: np.ndarray, suspect: np.ndarray, fit: float = FIT) -> float | None:
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


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-4 * max(abs(a), abs(b), 1e-12)


def _rounded(value: float) -> str:
    return f"{value:.3g}" if abs(value) > 1e-9 else "0"


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
