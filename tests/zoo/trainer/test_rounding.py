"""Rounding of gradients in exact runs."""

from functools import partial

import numpy as np
import pytest

from zoo.trainer import numpy_ops, update

round_gradients = partial(update.round_gradients, numpy_ops)


def test_gradients_are_rounded_to_multiples_of_a_power_of_two():
    gradient = 0.3 * np.random.default_rng(0).standard_normal(10_000)
    (rounded,) = round_gradients([gradient])
    spacing = 2.0 ** (np.floor(np.log2(1.5 * np.abs(gradient).max())) - 16)
    np.testing.assert_array_equal(rounded, np.round(gradient / spacing) * spacing)
    assert len(np.unique(rounded)) > 5000  # it is not coarse


def test_noise_makes_no_difference():
    rng = np.random.default_rng(1)
    gradients = [rng.standard_normal(5000) * 10.0**-power for power in range(4)]
    noisy = [gradient * (1 + 1e-14 * rng.standard_normal(gradient.shape)) for gradient in gradients]
    for first, second in zip(round_gradients(gradients), round_gradients(noisy)):
        np.testing.assert_array_equal(first, second)


def test_gradients_that_are_noise_become_zero():
    rng = np.random.default_rng(2)
    gradient, noise, rows = rng.standard_normal(10), 1e-17 * rng.standard_normal(10), 1e-3 * rng.standard_normal((2, 3))
    first, second, third = round_gradients([gradient, noise], [rows])
    assert not second.any()
    np.testing.assert_allclose(first, gradient, atol=5e-5)
    np.testing.assert_allclose(third, rows, atol=5e-8)


def test_zeros_and_infinities():
    np.testing.assert_array_equal(round_gradients([np.zeros(3)])[0], np.zeros(3))
    with pytest.warns(RuntimeWarning):
        assert not np.isfinite(round_gradients([np.array([1.0, np.inf])])[0]).all()
