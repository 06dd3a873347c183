"""zoo/compare/causes.py: every hypothesis on a loss."""

import numpy as np
import pytest

from zoo.compare import causes

SETTINGS = {
    "dropout": 0.2,
    "samples": 6,
    "accumulate": 4,
    "task": {"label_smoothing": 0.1, "scale": 64.0, "aux_weight": 0.4},
}


def normal(shape=(8, 6, 7, 7), seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


CLASSES = 5


def cross_entropy(logits, labels, smoothing=0.0, ignore=255):
    """Return the sum of the cross-entropies of all items with a label, one by one."""
    total = 0.0
    for index in np.ndindex(labels.shape):
        if labels.ndim > 1 and labels[index] == ignore:
            continue
        scores = logits[(index[0], slice(None), *index[1:])]
        probabilities = np.exp(scores) / np.exp(scores).sum()
        target = (1 - smoothing) * np.eye(len(scores))[labels[index]] + smoothing / len(scores)
        total -= (target * np.log(probabilities)).sum()
    return total


def samples(seed=0):
    rng = np.random.default_rng(seed)
    return [3 * rng.standard_normal((6, CLASSES))], rng.integers(0, CLASSES, 6)


def pixels(seed=0):
    """Return the logits of two heads and labels, some of which are ignored."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, (2, 4, 3))
    labels[0, 0] = labels[1, 2, 1] = 255
    return [3 * rng.standard_normal((2, CLASSES, 4, 3)) for _ in range(2)], labels


def guess_at_loss(reference, suspect, logits, labels, **task):
    """Return the guess of a setting; none at a mere factor."""
    found = causes.of_loss(
        reference, suspect, {**SETTINGS, "task": task, "loss_terms": causes.loss_terms(logits, labels)}
    )
    return "" if " times the others'" in found else found


@pytest.mark.parametrize(
    "smoothing, other, guess",
    [
        (0.1, 0.0, "label smoothing is 0 instead of 0.1"),
        (0.0, 0.1, "label smoothing is 0.1 instead of 0"),
        (0.1, 0.1 * 4 / 5, "label smoothing is 0.08 instead of 0.1"),  # spread over the other classes alone
        (0.1, 0.123456, ""),  # no number that someone writes
    ],
)
def test_label_smoothing(smoothing, other, guess):
    logits, labels = samples()
    reference, suspect = (cross_entropy(logits[0], labels, value) / 6 for value in (smoothing, other))
    assert guess_at_loss(reference, suspect, logits, labels, label_smoothing=smoothing) == guess
    if not smoothing:  # also in a task without it
        assert guess_at_loss(reference, suspect, logits, labels) == guess


@pytest.mark.parametrize("average", [20, 24])
@pytest.mark.parametrize("weight", [0.0, 0.25])
def test_weight_of_the_auxiliary_loss(average, weight):
    (main, auxiliary), labels = pixels()
    reference, suspect = (
        (cross_entropy(main, labels) + value * cross_entropy(auxiliary, labels)) / average for value in (0.4, weight)
    )
    guess = guess_at_loss(reference, suspect, [main, auxiliary], labels, aux_weight=0.4)
    assert guess == f"the auxiliary loss has the weight {weight:g} instead of 0.4"
