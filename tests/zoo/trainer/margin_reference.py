"""The margin objective of zoo/losses/face in numpy and float64, from its definition."""

import numpy as np


def target_logit(cosine, settings, norms, averages=None):
    """Return the target's cosine with its margin, and the derivative: exact, infinite where there is none.

    cosine: (M,), of samples and their classes. norms: (M,), lengths of the embeddings. averages: of AdaFace, before the
    batch.
    """
    c, loss = np.asarray(cosine, np.float64), settings
    value, slope = adaface(c, loss, norms, averages) if hasattr(loss, "h") else combined(c, loss)
    return value, np.ones_like(slope) if settings.gradient == "straight" else slope


def combined(c, loss):
    angle = np.arccos(np.clip(c, -1, 1))
    value = np.cos(loss.m1 * angle + loss.m2)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = loss.m1 * np.sin(loss.m1 * angle + loss.m2) / np.sin(angle)
    if loss.m1 == 1 and loss.m2 == 0:
        value, slope = c, np.ones_like(c)
    if loss.threshold and loss.m2:
        beyond = c <= np.cos(np.pi - loss.m2)
        value = np.where(beyond, c - loss.m2 * np.sin(np.pi - loss.m2), value)
        slope = np.where(beyond, 1.0, slope)
    return value - loss.m3, slope


def moved(averages, norms, loss):
    """Return AdaFace's mean and deviation of lengths (M,) after a batch; averages: those before it."""
    norms, old = np.clip(np.asarray(norms, np.float64), 1e-3, 100), (20.0, 100.0) if averages is None else averages
    batch = norms.mean(), norms.std(ddof=1)
    return tuple(loss.t_alpha * value + (1 - loss.t_alpha) * average for value, average in zip(batch, old))


def adaface(c, loss, norms, averages):
    mean, deviation = moved(averages, norms, loss)
    z = np.clip((np.clip(np.asarray(norms, np.float64), 1e-3, 100) - mean) / (deviation + 1e-3) * loss.h, -1, 1)
    angle = np.arccos(np.clip(c, -0.999, 0.999)) - loss.m * z
    inside = (np.abs(c) <= 0.999) & (angle >= 1e-3) & (angle <= np.pi - 1e-3)
    with np.errstate(divide="ignore"):
        slope = np.where(inside, np.sin(angle) / np.sqrt(1 - np.minimum(c * c, 1)), 0.0)
    return np.cos(np.clip(angle, 1e-3, np.pi - 1e-3)) - (loss.m + loss.m * z), slope


def loss_and_gradients(x, weight, labels, settings, averages=None):
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
