"""Colors and blur: torchvision's pixels for its draws, and how ours are distributed."""

import numpy as np
import pytest

from tests.data.augment.scripted import Scripted
from zoo.data.augment import color_jitter, gaussian_blur, grayscale, photometric_distortion
from zoo.data.transforms import photometric


def test_jitter_of_recorded_draws_gives_upstream_s_pixels(golden, target):
    for draws, expected in zip(golden["jitter/draws"], golden["jitter/results"], strict=True):
        order, factors = draws[:4].astype(int), draws[4:]
        drawn = color_jitter.draw(
            target, Scripted(0.0, order, *factors), brightness=0.4, contrast=0.5, saturation=0.6, hue=0.2
        )
        np.testing.assert_array_equal(drawn.image(golden["image"]), expected)


def test_factors_are_uniform_around_1_and_never_negative(target):
    rng, factors = np.random.default_rng(0), []
    for _ in range(4000):
        steps = color_jitter.draw(target, rng, brightness=0.4, contrast=1.5, hue=0.1).image.args[0]
        factors.append([value for _, value in sorted(steps, key=lambda step: step[0].__name__)])
    brightness, contrast, hue = np.array(factors).T
    for values, low, high in ((brightness, 0.6, 1.4), (contrast, 0, 2.5), (hue, -0.1, 0.1)):
        assert low <= values.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))


def test_the_order_is_drawn(target):
    rng = np.random.default_rng(0)
    draw = lambda: color_jitter.draw(target, rng, brightness=0.1, contrast=0.1, saturation=0.1, hue=0.1)  # noqa: E731
    orders = {tuple(function.__name__ for function, _ in draw().image.args[0]) for _ in range(400)}
    assert len(orders) == 24


def test_jitter_without_a_change_or_a_chance_does_nothing(target):
    assert color_jitter.draw(target, np.random.default_rng(0)) is None
    assert color_jitter.draw(target, np.random.default_rng(0), brightness=0.4, p=0.0) is None


def test_gray_and_blurred_pixels_are_upstream_s(golden, target):
    image = golden["image"]
    np.testing.assert_array_equal(grayscale.draw(target, Scripted(0.09)).image(image), golden["gray"])
    assert grayscale.draw(target, Scripted(0.1)) is None
    for kernel, sigma in ((5, 0.3), (5, 1.7), (9, 2.5)):
        drawn = gaussian_blur.draw(target, Scripted(0.4, sigma), kernel=kernel)
        difference = drawn.image(image).astype(int) - golden[f"blur/{kernel}/{sigma}"]
        assert np.abs(difference).max() <= 1  # fixed point


@pytest.mark.parametrize("module, p", [(grayscale, 0.1), (gaussian_blur, 0.5)])
def test_probabilities(module, p, target):
    rng = np.random.default_rng(0)
    happened = sum(module.draw(target, rng) is not None for _ in range(4000)) / 4000
    assert happened == pytest.approx(p, abs=4 * (p * (1 - p) / 4000) ** 0.5)


def test_the_photometric_distortion_is_that_of_scenes(golden, target):
    drawn = photometric_distortion.draw(target, np.random.default_rng(3))
    expected = photometric.distort(golden["image"], photometric.draw_params(np.random.default_rng(3)))
    assert not np.array_equal(expected, golden["image"])
    np.testing.assert_array_equal(drawn.image(golden["image"]), expected)
