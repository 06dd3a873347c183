"""The margin objective of zoo/tasks/face.py in numpy and float64, from its definition."""

import numpy as np


def target_logit(cosine, settings):
    """Return the target's cosine with its margin, and the derivative: exact, infinite where there is none."""
    c = np.asarray(cosine, np.float64)
    angle = np.arccos(np.clip(c, -1, 1))
    value = np.cos(settings.m1 * angle + settings.m2)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = settings.m1 * np.sin(settings.m1 * angle + settings.m2) / np.sin(angle)
    if settings.m1 == 1 and settings.m2 == 0:
        value, slope = c, np.ones_like(c)
    if settings.threshold and settings.m2:
        beyond = c <= np.cos(np.pi - settings.m2)
        value = np.where(beyond, c - settings.m2 * np.sin(np.pi - settings.m2), value)
        slope = np.where(beyond, 1.0, slope)
    return value - settings.m3, np.ones_like(slope) if settings.straight_through else slope


def loss_and_gradients(x, weight, labels, settings):
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
    logits[is_target], slope[is_target] = target_logit(cosine[samples, labels], settings)
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
