"""Orders of samples and states of random generators are functions of seed and position; balanced classes."""

import numpy as np
import pytest

from tests.data.test_stream import BALANCE, Numbers, indices
from zoo.data import order, seeding
from zoo.data.datasets import imagenet, kinetics
from zoo.data.formats.lists import LabeledPath

COUNTS = np.array([100, 40, 0, 7, 1])
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5), COUNTS))
SIZE = len(LABELS)


def epochs(strength, count, seed=3):
    balance = order.Balance(LABELS, strength)
    return [order.permutation(seed, epoch, SIZE, balance) for epoch in range(count)]


def test_classes_are_shown_equally_often_and_their_samples_take_turns():
    for drawn in epochs(1.0, 20):
        shown = np.bincount(LABELS[drawn], minlength=5)
        assert len(drawn) == SIZE and shown[2] == 0 and set(shown[COUNTS > 0]) <= {37}
        times = np.bincount(drawn, minlength=SIZE)
        assert all(np.ptp(times[label == LABELS]) <= 1 for label in np.flatnonzero(COUNTS))


def test_every_sample_of_a_large_class_is_shown_in_some_epoch():
    assert set(np.concatenate(epochs(1.0, 20))) == set(range(SIZE))


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.5, 1.0])
def test_a_class_is_shown_in_proportion_to_a_power_of_its_samples(strength):
    expected = np.array([count ** (1 - strength) if count else 0 for count in COUNTS])
    expected *= SIZE / expected.sum()
    np.testing.assert_allclose(order.per_epoch(COUNTS, strength), expected, rtol=1e-14)
    shown = np.array([np.bincount(LABELS[drawn], minlength=5) for drawn in epochs(strength, 400)])
    assert abs(shown - expected).max() < 1  # in every epoch: rounded up or down
    # The mean over epochs: a rounding has a deviation of 0.5 at most.
    np.testing.assert_allclose(shown.mean(0), expected, atol=5 * 0.5 / 400**0.5)


def test_strength_0_shows_every_sample_once():
    assert all(sorted(drawn) == list(range(SIZE)) for drawn in epochs(0.0, 3))


def test_epochs_and_seeds_have_orders_of_their_own():
    drawn = [tuple(each) for seed in (3, 4) for each in epochs(1.0, 3, seed)]
    assert len(set(drawn)) == 6 and drawn[:3] == [tuple(each) for each in epochs(1.0, 3)]
    # Classes are mixed: not more neighbors of one class than chance gives (a quarter), within 5 deviations.
    labels = LABELS[np.concatenate(epochs(1.0, 20))]
    assert abs((labels[1:] == labels[:-1]).mean() - 0.25) < 5 * (0.25 * 0.75 / len(labels)) ** 0.5


def test_other_orders_are_left_alone():
    plain = np.random.default_rng((3, 0xF5299398, 1)).permutation(SIZE)
    assert np.array_equal(order.permutation(3, 1, SIZE), plain)


def test_a_stream_shows_classes_equally_often_in_batches_of_any_size():
    seen = indices(Numbers(balance=BALANCE), batch_size=4, last=12)
    assert seen == indices(Numbers(balance=BALANCE), batch_size=6, last=8)
    assert sum(index % 5 == 0 for index in seen[:46]) in (22, 23, 24)  # half of two epochs, of which each is rounded


@pytest.mark.parametrize("module, split", [(imagenet, "ImageSplit"), (kinetics, "ClipSplit")])
def test_training_splits_are_balanced_by_the_settings(module, split):
    entries = [LabeledPath(f"{number}.x", min(number, 1)) for number in range(5)]  # one sample of 0, four of 1

    def make(training, entries=entries, **keys):
        return getattr(module, split)(module.Settings(size=32, **keys), entries, ("a", "b"), training)

    train = make(True, balance=1.0)
    assert train.balance.labels.tolist() == [0, 1, 1, 1, 1] and train.balance.strength == 1.0
    assert "data.balance: by class, an epoch shows a sample 0.625 to 2.5 times" in train.notes
    assert make(False, balance=1.0).balance is None and make(True).balance is None
    assert make(True, entries=[], balance=1.0).balance is None  # as a predictor makes one
    with pytest.raises(ValueError, match="^balance: must be from 0 to 1, got 1.5"):
        make(True, balance=1.5)


WORD = 1 << 32
SEEDS = (0, 1, 7, WORD - 1, WORD, WORD + 1, 1 << 64, 1 << 90)
FIRSTS = (0, 250, WORD - 2, 5 * WORD + 3, (1 << 64) - 2, 1 << 80)
AT_ONCE = (1, seeding.MIN_AT_ONCE - 1, seeding.MIN_AT_ONCE, 33)


@pytest.mark.parametrize("seed", SEEDS)
def test_states_are_those_of_default_rng(seed):
    for first in FIRSTS:
        for count in AT_ONCE:
            numbers = range(first, first + count)
            for number, generator in zip(numbers, order.generators(seed, "augment", numbers), strict=True):
                expected = order.generator(seed, "augment", number)
                assert generator.bit_generator.state == expected.bit_generator.state
                assert (generator.random(), generator.integers(9)) == (expected.random(), expected.integers(9))


def test_random_words_in_any_order():
    rng = np.random.default_rng(0)
    for prefix in rng.integers(0, WORD, (40, 2)).tolist():
        numbers = rng.integers(0, 1 << 63, 20).tolist()
        states = [generator.bit_generator.state for generator in seeding.generators((prefix[0], prefix[1]), numbers)]
        assert states == [np.random.default_rng((*prefix, number)).bit_generator.state for number in numbers]


def test_no_numbers():
    assert order.generators(1, "augment", range(0)) == []


def test_a_batch_is_seeded_at_once(monkeypatch):
    monkeypatch.setattr(np.random, "default_rng", None)
    assert len(order.generators(3, "augment", range(WORD - 30, WORD + 30))) == 60
