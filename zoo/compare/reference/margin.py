"""The losses of face models: margin softmax, with the gradients by embeddings and class matrix.

`settings` is section `task:`.
"""

from typing import Any

import numpy as np

Array = np.ndarray
Averages = tuple[float, float] | None  # mean and deviation of AdaFace, before a batch; None: those of a new run


def target_logit(cosine: Any, settings: Any, norms: Any, averages: Averages = None) -> tuple[Array, Array]:
    """Return the target's cosine with its margin, and the derivative: exact, infinite where there is none.

    Args:
        cosine: (M,), of samples and their classes.
        norms: (M,), lengths of the embeddings.
    """
    c, loss = np.asarray(cosine, np.float64), settings
    value, slope = adaface(c, loss, norms, averages) if loss.loss == "adaface" else combined(c, loss)
    return value, np.ones_like(slope) if settings.gradient == "straight" else slope


def combined(c: Array, loss: Any) -> tuple[Array, Array]:
    m1 = loss.m1 if loss.loss == "combined" else 1.0
    m2 = 0.0 if loss.loss == "cosface" else loss.m2
    m3 = 0.0 if loss.loss == "arcface" else loss.m3
    angle = np.arccos(np.clip(c, -1, 1))
    value = np.cos(m1 * angle + m2)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = m1 * np.sin(m1 * angle + m2) / np.sin(angle)
    if m1 == 1 and m2 == 0:
        value, slope = c, np.ones_like(c)
    elif m2 and loss.threshold:
        beyond = c <= np.cos(np.pi - m2)
        value = np.where(beyond, c - m2 * np.sin(np.pi - m2), value)
        slope = np.where(beyond, 1.0, slope)
    return value - m3, slope


def moved(averages: Averages, norms: Any, loss: Any) -> tuple[float, float]:
    """Return AdaFace's mean and deviation of lengths (M,) after a batch."""
    norms, old = np.clip(np.asarray(norms, np.float64), 1e-3, 100), (20.0, 100.0) if averages is None else averages
    batch = norms.mean(), norms.std(ddof=1)
    mean, deviation = (loss.t_alpha * new + (1 - loss.t_alpha) * average for new, average in zip(batch, old))
    return mean, deviation


def quality(averages: Averages, norms: Any, loss: Any) -> Array:
    """Return how good AdaFace takes images with embeddings of lengths (M,) to be, from -1 to 1."""
    mean, deviation = moved(averages, norms, loss)
    z: Array = np.clip((np.clip(np.asarray(norms, np.float64), 1e-3, 100) - mean) / (deviation + 1e-3) * loss.h, -1, 1)
    return z


def adaface(c: Array, loss: Any, norms: Any, averages: Averages) -> tuple[Array, Array]:
    z = quality(averages, norms, loss)
    angle = np.arccos(np.clip(c, -0.999, 0.999)) - loss.m * z
    inside = (np.abs(c) <= 0.999) & (angle >= 1e-3) & (angle <= np.pi - 1e-3)
    with np.errstate(divide="ignore"):
        slope = np.where(inside, np.sin(angle) / np.sqrt(1 - np.minimum(c * c, 1)), 0.0)
    return np.cos(np.clip(angle, 1e-3, np.pi - 1e-3)) - (loss.m + loss.m * z), slope


def loss_and_gradients(
    x: Array, weight: Array, labels: Array, settings: Any, averages: Averages = None
) -> tuple[Any, Array, Array]:
    """Return the sum of the losses of all samples, and its gradients by x (M, d) and weight (C, d)."""
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    lengths, row_lengths = (np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (x, weight))
    units, rows = x / lengths, weight / row_lengths
    cosine, samples = units @ rows.T, np.arange(len(x))
    is_target = np.zeros(cosine.shape, bool)
    is_target[samples, labels] = True
    logits, slope = cosine.copy(), np.ones_like(cosine)
    if settings.interclass is not None:
        filtered = (cosine > settings.interclass) & ~is_target
        logits[filtered], slope[filtered] = 0, 0
    logits[is_target], slope[is_target] = target_logit(cosine[samples, labels], settings, lengths[:, 0], averages)
    logits *= settings.scale
    powers = np.exp(logits - logits.max(1, keepdims=True))
    probabilities = powers / powers.sum(1, keepdims=True)
    losses = np.log(powers.sum(1)) + logits.max(1) - logits[samples, labels]
    to_cosine = (probabilities - is_target) * settings.scale * slope
    to_cosine = np.where(is_target & ~np.isfinite(to_cosine), 0, to_cosine)  # no derivative at an angle of 0 or pi
    to_units, to_rows = to_cosine @ rows, to_cosine.T @ units
    return (
        losses.sum(),
        (to_units - units * (units * to_units).sum(1, keepdims=True)) / lengths,
        (to_rows - rows * (rows * to_rows).sum(1, keepdims=True)) / row_lengths,
    )
