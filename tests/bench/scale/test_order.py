"""The slowest of n: exact for known distributions."""

import numpy as np
import pytest

from zoo.bench.scale.order import expected_maximum


def test_one_draw_is_the_mean():
    sample = np.random.default_rng(0).lognormal(size=57)
    assert expected_maximum(sample, 1) == pytest.approx(sample.mean())


def test_equal_values_have_no_maximum_beyond_them():
    assert expected_maximum([0.5, 0.5, 0.5], 1024) == pytest.approx(0.5)
    assert expected_maximum([0.25], 8) == pytest.approx(0.25)


@pytest.mark.parametrize("n", [2, 8, 64, 1024])
def test_an_exponential_distribution_has_the_harmonic_numbers(n):
    """The mean of the largest of n is 1 + 1/2 + ... + 1/n; a sample of 200 has no values as rare as 1 in 1024."""
    sample = -np.log1p(-(np.arange(200) + 0.5) / 200)
    assert expected_maximum(sample, n) == pytest.approx(sum(1 / np.arange(1, n + 1)), rel=0.05)


@pytest.mark.parametrize("n", [2, 16, 256])
def test_a_uniform_distribution(n):
    sample = (np.arange(1000) + 0.5) / 1000
    assert expected_maximum(sample, n) == pytest.approx(n / (n + 1), abs=0.2 if n > 16 else 0.04)


@pytest.mark.parametrize("n", [4, 32])
def test_random_draws_agree(n):
    generator = np.random.default_rng(1)
    sample = generator.lognormal(0, 0.1, 400)
    drawn = generator.lognormal(0, 0.1, (20000, n)).max(axis=1).mean()
    assert expected_maximum(sample, n) == pytest.approx(drawn, rel=0.02)


def test_more_processes_wait_longer():
    sample = np.random.default_rng(2).lognormal(0, 0.2, 50)
    waits = [expected_maximum(sample, n) for n in (1, 2, 8, 64, 1024)]
    assert waits == sorted(waits) and waits[-1] > 1.3 * waits[0]
