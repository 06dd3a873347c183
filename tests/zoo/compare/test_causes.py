"""zoo/compare/causes.py: every hypothesis on a loss and on running statistics."""

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


def statistics(momentum=0.9, correction=1.0):
    """Return the values before and after an update, from 32 values of each of 6 channels."""
    before, batch = np.full(6, 1.0), np.random.default_rng(3).uniform(0.2, 3, 6)
    return before, momentum * before + (1 - momentum) * correction * batch


@pytest.mark.parametrize("name", ["bn.running_mean", "bn.running_var"])
@pytest.mark.parametrize("momentum", [0.99, 0.1, 0.95, 0.0, 0.899])
def test_momentum_of_statistics(name, momentum):
    before, reference = statistics()
    found = causes.of_statistic(name, before, reference, statistics(momentum)[1])
    value = float(found.removeprefix("the momentum is ").partition(" ")[0])
    assert value == pytest.approx(momentum, abs=1e-9)
    assert found.endswith(" (the old value's weight) instead of 0.9")


@pytest.mark.parametrize("count", [2, 4, 32, 3136])
def test_biased_variance(count):
    before, reference = statistics(correction=count / (count - 1))
    biased = statistics()[1]
    text = "the variance of a batch is the {} one: of {} values, {:.6g} times the others'"
    scale = (count - 1) / count
    found = causes.of_statistic("bn.running_var", before, reference, biased)
    assert found == text.format("biased", count, scale)
    found = causes.of_statistic("bn.running_var", before, biased, reference)
    assert found == text.format("unbiased", count, 1 / scale)
    assert causes.of_statistic("bn.running_mean", before, reference, biased) == ""  # means have no such thing
