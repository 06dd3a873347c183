"""The optimizers, one parameter at a time, from their papers (zoo/optim has the sources), and the moving average."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray
Slots = tuple[Array, ...]
Rounding = Callable[[Any], Any]  # of sums and powers, as an exact run does it
Direction = tuple[Array, Slots]
GROWTH_INTERVAL = 2000  # finite updates in a row, after which a loss scale is doubled


def _identity(number: Any) -> Any:
    return number


def sgd(spec: Any, weight: Array, gradient: Array, slots: Slots, decay: float, applied: int, _: Rounding) -> Direction:
    velocity = spec.momentum * slots[0] + (gradient + decay * weight)
    return velocity, (velocity,)


def sgd_nesterov(
    spec: Any, weight: Array, gradient: Array, slots: Slots, decay: float, applied: int, _: Rounding
) -> Direction:
    slope = gradient + decay * weight
    velocity = spec.momentum * slots[0] + slope
    return slope + spec.momentum * velocity, (velocity,)


def lars(
    spec: Any, weight: Array, gradient: Array, slots: Slots, decay: float, applied: int, rounded: Rounding
) -> Direction:
    slope = gradient + decay * weight
    length, steepness = np.sqrt((weight**2).sum()), np.sqrt((gradient**2).sum())
    if weight.ndim > 1 and length > 0 and steepness > 0:
        trust = spec.trust_coefficient * length / (steepness + decay * length + spec.eps)
        slope = rounded(trust) * slope
    velocity = spec.momentum * slots[0] + slope
    return velocity, (velocity,)


def adamw(
    spec: Any, weight: Array, gradient: Array, slots: Slots, decay: float, applied: int, rounded: Rounding
) -> Direction:
    mean = spec.beta1 * slots[0] + (1 - spec.beta1) * gradient
    square = spec.beta2 * slots[1] + (1 - spec.beta2) * (gradient * gradient)
    unbiased_mean = mean / rounded(1 - spec.beta1**applied)
    unbiased_square = square / rounded(1 - spec.beta2**applied)
    return unbiased_mean / (np.sqrt(unbiased_square) + spec.eps) + decay * weight, (mean, square)


def lamb(
    spec: Any, weight: Array, gradient: Array, slots: Slots, decay: float, applied: int, rounded: Rounding
) -> Direction:
    step, slots = adamw(spec, weight, gradient, slots, decay, applied, rounded)
    length, stride = np.sqrt((weight**2).sum()), np.sqrt((step**2).sum())
    if weight.ndim > 1 and length > 0 and stride > 0:
        step = rounded(length / stride) * step
    return step, slots


def muon(
    spec: Any, weight: Array, gradient: Array, slots: Slots, decay: float, applied: int, rounded: Rounding
) -> Direction:
    if weight.ndim < 3:
        return adamw(spec, weight, gradient, slots, decay, applied, rounded)
    mean = spec.filter_momentum * slots[0] + (1 - spec.filter_momentum) * gradient
    matrix = (spec.filter_momentum * mean + (1 - spec.filter_momentum) * gradient).reshape(len(weight), -1)
    left, values, right = np.linalg.svd(matrix / (np.linalg.norm(matrix) + 1e-7), full_matrices=False)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    orthogonal = (left * values) @ right
    if rounded is not _identity:  # as an exact run does it
        orthogonal = np.rint(orthogonal * 2**16) / 2**16
    step = 0.2 * np.sqrt(max(matrix.shape)) * orthogonal.reshape(weight.shape)
    return step + decay * weight, (mean, spec.beta2 * slots[1] + (1 - spec.beta2) * gradient**2)


DIRECTIONS = {"sgd": sgd, "sgd_nesterov": sgd_nesterov, "lars": lars, "adamw": adamw, "lamb": lamb, "muon": muon}


def direction(
    spec: Any,
    weight: Array,
    gradient: Array,
    slots: Slots,
    decay: float,
    applied: int,
    rounded: Rounding = _identity,
) -> Direction:
    """Return what the learning rate multiplies, and the new slots.

    Args:
        spec: section `optim`, with one of DIRECTIONS.
        gradient: unscaled and clipped.
        applied: number of the update without those that were skipped, from 1.
    """
    return DIRECTIONS[spec.name](spec, weight, gradient, slots, decay, applied, rounded)


def average_rate(decay: float, warmup: bool, applied: int) -> float:
    """Return the share of the weights in a moving average, in update `applied`: tf.train.ExponentialMovingAverage."""
    return 1 - min(decay, (1 + applied) / (10 + applied)) if warmup else 1 - decay


def loss_scale(scale: float, good: float, skipped: float, is_finite: bool, adapts: bool) -> tuple[float, float, float]:
    """Return loss scale, finite updates since it changed, and skipped ones, after an update: torch.amp.GradScaler."""
    if not is_finite:
        return (scale / 2, 0.0, skipped + 1) if adapts else (scale, good, skipped + 1)
    if not adapts:
        return scale, good, skipped
    return (scale * 2, 0.0, skipped) if good + 1 >= GROWTH_INTERVAL else (scale, good + 1, skipped)
