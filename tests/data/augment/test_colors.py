"""Colors and blur: pixels of torchvision and mmsegmentation for their draws, and how ours are distributed."""

import math

import numpy as np
import pytest

from tests.data.augment.golden import Scripted
from tests.helpers.paths import GOLDEN
from zoo.data.augment.colors import (
    DistortionParams,
    color_jitter,
    distort,
    draw_params,
    gaussian_blur,
    grayscale,
    photometric_distortion,
)

IDENTITY = DistortionParams(None, None, False, None, None)


def test_jitter_of_recorded_draws_gives_upstream_s_pixels(golden, target):
    for draws, expected in zip(golden["jitter/draws"], golden["jitter/results"], strict=True):
        order, factors = draws[:4].astype(int), draws[4:]
        drawn = color_jitter(
            target, Scripted(0.0, order, *factors), brightness=0.4, contrast=0.5, saturation=0.6, hue=0.2
        )
        np.testing.assert_array_equal(drawn.image(golden["image"]), expected)


def test_factors_are_uniform_around_1_and_never_negative(target):
    rng, factors = np.random.default_rng(0), []
    for _ in range(4000):
        steps = color_jitter(target, rng, brightness=0.4, contrast=1.5, hue=0.1).image.args[0]
        factors.append([value for _, value in sorted(steps, key=lambda step: step[0].__name__)])
    brightness, contrast, hue = np.array(factors).T
    for values, low, high in ((brightness, 0.6, 1.4), (contrast, 0, 2.5), (hue, -0.1, 0.1)):
        assert low <= values.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))


def test_the_order_is_drawn(target):
    rng = np.random.default_rng(0)
    keys = {"brightness": 0.1, "contrast": 0.1, "saturation": 0.1, "hue": 0.1}
    drawn = (color_jitter(target, rng, **keys) for _ in range(400))
    orders = {tuple(function.__name__ for function, _ in one.image.args[0]) for one in drawn}
    assert len(orders) == 24


def test_jitter_without_a_change_or_a_chance_does_nothing(target):
    assert color_jitter(target, np.random.default_rng(0)) is None
    assert color_jitter(target, np.random.default_rng(0), brightness=0.4, p=0.0) is None


def test_gray_and_blurred_pixels_are_upstream_s(golden, target):
    image = golden["image"]
    np.testing.assert_array_equal(grayscale(target, Scripted(0.09)).image(image), golden["gray"])
    assert grayscale(target, Scripted(0.1)) is None
    for kernel, sigma in ((5, 0.3), (5, 1.7), (9, 2.5)):
        drawn = gaussian_blur(target, Scripted(0.4, sigma), kernel=kernel)
        difference = drawn.image(image).astype(int) - golden[f"blur/{kernel}/{sigma}"]
        assert np.abs(difference).max() <= 1  # fixed point


@pytest.mark.parametrize("function, p", [(grayscale, 0.1), (gaussian_blur, 0.5)])
def test_probabilities(function, p, target):
    rng = np.random.default_rng(0)
    happened = sum(function(target, rng) is not None for _ in range(4000)) / 4000
    assert happened == pytest.approx(p, abs=4 * (p * (1 - p) / 4000) ** 0.5)


@pytest.fixture(scope="module")
def upstream():
    with np.load(GOLDEN / "mmseg_transforms.npz") as file:
        return {name: file[name] for name in file.files}


def as_params(row):
    brightness, contrast, first, saturation, hue = (None if math.isnan(value) else float(value) for value in row)
    return DistortionParams(brightness, contrast, bool(first), saturation, None if hue is None else int(hue))


def test_distortions_match_upstream_for_its_draws(upstream):
    image, before = upstream["photometric/image"], upstream["photometric/image"].copy()
    combinations = set()
    for row, expected in zip(upstream["photometric/draws"], upstream["photometric/results"]):
        params = as_params(row)
        assert np.array_equal(distort(image, params), expected), params
        first = params.contrast is None or params.contrast_first
        combinations.add((first, *(value is None for value in params[:2] + params[3:])))
    assert len(combinations) == 24 and np.array_equal(image, before)


@pytest.mark.parametrize(
    "params, value, expected",
    [
        (IDENTITY._replace(brightness=31.99), 100, 131),
        (IDENTITY._replace(brightness=-31.99), 100, 68),
        (IDENTITY._replace(brightness=-0.5), 0, 0),
        (IDENTITY._replace(brightness=32.0), 240, 255),
        (IDENTITY._replace(contrast=1.499), 101, 151),
        (IDENTITY._replace(contrast=0.5, contrast_first=True), 101, 50),
        (IDENTITY._replace(brightness=0.9, contrast=1.5), 3, 4),  # 3.9 becomes 3 before it becomes 4.5
        (IDENTITY._replace(contrast=0.99999999), 100, 100),  # rounds to 1 in float32, in which upstream computes
        (IDENTITY._replace(saturation=1.5), 77, 77),
        (IDENTITY._replace(hue=-18), 77, 77),
    ],
)
def test_every_step_truncates_and_clips_on_gray(params, value, expected):
    image = np.full((4, 5, 3), value, np.uint8)
    assert np.array_equal(distort(image, params), np.full((4, 5, 3), expected, np.uint8))


def test_hue_rotates_colors_and_saturation_moves_them_from_gray():
    color = np.full((2, 2, 3), (200, 0, 0), np.uint8)
    assert distort(color, IDENTITY._replace(hue=15))[0, 0].tolist() == [200, 100, 0]  # 30 degrees: orange
    assert distort(color, IDENTITY._replace(hue=-15))[0, 0].tolist() == [200, 0, 100]  # across 0
    color[:] = 200, 100, 100
    less, more = (distort(color, IDENTITY._replace(saturation=factor))[0, 0] for factor in (0.5, 1.5))
    assert less[0] == more[0] == 200 and abs(int(less[1]) - 150) <= 2 and abs(int(more[1]) - 50) <= 2


def test_the_distribution_of_distortions():
    rng = np.random.default_rng(0)
    draws = [draw_params(rng) for _ in range(4000)]
    for key in ("brightness", "contrast", "saturation", "hue"):
        assert abs(np.mean([getattr(params, key) is None for params in draws]) - 0.5) < 0.03, key
    assert abs(np.mean([params.contrast_first for params in draws]) - 0.5) < 0.03
    assert {params.hue for params in draws if params.hue is not None} == set(range(-18, 18))  # upstream never draws 18
    for key, low, high in (("brightness", -32, 32), ("contrast", 0.5, 1.5), ("saturation", 0.5, 1.5)):
        values = np.array([getattr(params, key) for params in draws if getattr(params, key) is not None])
        assert values.min() >= low and values.max() <= high
        assert np.allclose(np.quantile((values - low) / (high - low), [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.04)


def test_the_distortion_is_carried_out_on_the_image(golden, target):
    drawn = photometric_distortion(target, np.random.default_rng(3))
    expected = distort(golden["image"], draw_params(np.random.default_rng(3)))
    assert not np.array_equal(expected, golden["image"])
    np.testing.assert_array_equal(drawn.image(golden["image"]), expected)
