"""zoo/compare/losses.py against cross-entropies written out here."""

import numpy as np
import pytest

from zoo.compare import losses

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


@pytest.mark.parametrize("make, count, valid", [(samples, 6, 6), (pixels, 24, 20)])
def test_terms_are_the_cross_entropies(make, count, valid):
    logits, labels = make()
    sums = losses.terms(logits, labels)
    assert (sums["all"], sums["valid"]) == (count, valid)
    expected = [[cross_entropy(head, labels), cross_entropy(head, labels, 1.0)] for head in logits]
    np.testing.assert_allclose(sums["heads"], expected, rtol=1e-12)


def test_a_class_of_255_is_a_class_where_a_sample_has_one_label():
    logits = [np.random.default_rng(0).standard_normal((2, 300))]
    sums = losses.terms(logits, np.array([255, 3]))
    assert sums["valid"] == 2
    assert sums["heads"][0][0] == pytest.approx(cross_entropy(logits[0], np.array([255, 3])))


def test_large_logits_are_finite():
    sums = losses.terms([np.array([[1000.0, -1000.0]])], np.array([1]))
    assert sums["heads"] == [[2000.0, 1000.0]]


@pytest.mark.parametrize(
    "smoothing, other, guess",
    [
        (0.1, 0.0, "label smoothing is 0 instead of 0.1"),
        (0.0, 0.1, "label smoothing is 0.1 instead of 0"),
        (0.1, 0.05, "label smoothing is 0.05 instead of 0.1"),
        (0.1, 0.1 * 4 / 5, "label smoothing is 0.08 instead of 0.1"),  # spread over the other classes alone
        (0.1, 0.123456, ""),  # no number that someone writes
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_label_smoothing(smoothing, other, guess, seed):
    logits, labels = samples(seed)
    reference, suspect = (cross_entropy(logits[0], labels, value) / 6 for value in (smoothing, other))
    assert losses.guess(reference, suspect, losses.terms(logits, labels), {"label_smoothing": smoothing}) == guess


def test_label_smoothing_of_a_task_without_it():
    logits, labels = samples()
    reference, suspect = (cross_entropy(logits[0], labels, value) / 6 for value in (0.0, 0.1))
    guess = losses.guess(reference, suspect, losses.terms(logits, labels), {})
    assert guess == "label smoothing is 0.1 instead of 0"


@pytest.mark.parametrize("average", [20, 24])
@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_weight_of_the_auxiliary_loss(average, weight):
    (main, auxiliary), labels = pixels()
    reference, suspect = (
        (cross_entropy(main, labels) + value * cross_entropy(auxiliary, labels)) / average for value in (0.4, weight)
    )
    guess = losses.guess(reference, suspect, losses.terms([main, auxiliary], labels), {"aux_weight": 0.4})
    assert guess == f"the auxiliary loss has the weight {weight:g} instead of 0.4"


@pytest.mark.parametrize(
    "reference, suspect, guess",
    [
        (20, 24, "the loss is averaged over all pixels instead of those with a label"),
        (24, 20, "the loss is averaged over the pixels with a label"),
    ],
)
def test_average(reference, suspect, guess):
    logits, labels = pixels()
    total = cross_entropy(logits[0], labels)
    assert losses.guess(total / reference, total / suspect, losses.terms(logits[:1], labels), {}) == guess


@pytest.mark.parametrize("make", [samples, pixels])
@pytest.mark.parametrize("task", [{}, {"label_smoothing": 0.1}, {"aux_weight": 0.4}])
def test_no_guess_at_random_differences(make, task):
    logits, labels = make()
    sums, rng = losses.terms(logits, labels), np.random.default_rng(1)
    for head in logits[:1]:
        reference = cross_entropy(head, labels) / sums["valid"]
        for size in (1e-9, 1e-7, 1e-3, 0.1):
            for suspect in reference * (1 + size * rng.standard_normal(20)):
                assert losses.guess(reference, suspect, sums, task) == ""


def test_a_classifier_that_starts_as_0():
    """All classes are as likely, so that smoothing changes nothing."""
    labels = np.arange(4)
    sums = losses.terms([np.zeros((4, CLASSES))], labels)
    assert losses.guess(np.log(CLASSES), 1.0, sums, {"label_smoothing": 0.1}) == ""


def test_a_batch_without_labels():
    sums = losses.terms([np.zeros((1, CLASSES, 2, 2))] * 2, np.full((1, 2, 2), 255))
    assert sums["valid"] == 0
    assert losses.guess(0.0, 1.0, sums, {"aux_weight": 0.4}) == ""
