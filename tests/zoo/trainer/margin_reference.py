"""The margin objective of zoo/tasks/face.py in numpy, float64, from its definition: for the tests of all frameworks."""

import numpy as np


def target_logit(cosine, settings):
    """What becomes of the own class's cosine, and its slope; the latter exact, where it exists."""
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
    """Sum of the losses of all samples, and its gradients by x (M, d) and weight (C, d)."""
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    unit, row = x / np.linalg.norm(x, axis=1, keepdims=True), weight / np.linalg.norm(weight, axis=1, keepdims=True)
    cosine, every = unit @ row.T, np.arange(len(x))
    own = np.zeros(cosine.shape, bool)
    own[every, labels] = True
    through = np.ones_like(cosine)
    logit = cosine.copy()
    if settings.interclass is not None:
        hidden = (cosine > settings.interclass) & ~own
        logit[hidden], through[hidden] = 0, 0
    logit[own], through[own] = target_logit(cosine[every, labels], settings)
    logit *= settings.scale
    shifted = np.exp(logit - logit.max(1, keepdims=True))
    share = shifted / shifted.sum(1, keepdims=True)
    losses = np.log(shifted.sum(1)) + logit.max(1) - logit[every, labels]
    by_cosine = (share - own) * settings.scale * through
    by_cosine = np.where(own & ~np.isfinite(by_cosine), 0, by_cosine)  # no slope at an angle of 0 or pi
    by_unit, by_row = by_cosine @ row, by_cosine.T @ unit
    return (
        losses.sum(),
        (by_unit - unit * (unit * by_unit).sum(1, keepdims=True)) / np.linalg.norm(x, axis=1, keepdims=True),
        (by_row - row * (row * by_row).sum(1, keepdims=True)) / np.linalg.norm(weight, axis=1, keepdims=True),
    )
