"""Generators that are seeded at once, against NumPy's own seeding."""

import numpy as np
import pytest

from zoo.data import order, seeding

WORD = 1 << 32
SEEDS = (0, 1, 7, WORD - 1, WORD, WORD + 1, 1 << 64, 1 << 90)
FIRSTS = (0, 250, WORD - 2, 5 * WORD + 3, (1 << 64) - 2, 1 << 80)
COUNTS = (1, seeding.MIN_AT_ONCE - 1, seeding.MIN_AT_ONCE, 33)


@pytest.mark.parametrize("seed", SEEDS)
def test_states_are_those_of_default_rng(seed):
    for first in FIRSTS:
        for count in COUNTS:
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
