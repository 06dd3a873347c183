"""The photometric distortion: upstream's recorded pixels for its draws, truncation, and the distribution of draws."""

import math

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN
from zoo.data.transforms import photometric
from zoo.data.transforms.photometric import DistortionParams

IDENTITY = DistortionParams(None, None, False, None, None)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "mmseg_transforms.npz") as file:
        return {name: file[name] for name in file.files}


def as_params(row):
    brightness, contrast, first, saturation, hue = (None if math.isnan(value) else float(value) for value in row)
    return DistortionParams(brightness, contrast, bool(first), saturation, None if hue is None else int(hue))


def random_image(seed=0, size=(30, 40)):
    return np.random.default_rng(seed).integers(0, 256, size + (3,), dtype=np.uint8)


def test_pixels_match_upstream_for_its_draws(golden):
    image, before = golden["photometric/image"], golden["photometric/image"].copy()
    combinations = set()
    for row, expected in zip(golden["photometric/draws"], golden["photometric/results"]):
        params = as_params(row)
        assert np.array_equal(photometric.distort(image, params), expected), params
        combinations.add(
            (
                params.brightness is None,
                params.contrast is None or params.contrast_first,
                params.contrast is None,
                params.saturation is None,
                params.hue is None,
            )
        )
    assert len(combinations) == 24 and np.array_equal(image, before)
    assert np.abs(golden["photometric/results"].astype(int) - image).max(axis=(1, 2, 3)).min() == 0  # one is unchanged


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
    assert np.array_equal(photometric.distort(image, params), np.full((4, 5, 3), expected, np.uint8))


def test_hue_rotates_colors_and_keeps_their_value():
    red = np.zeros((2, 2, 3), np.uint8)
    red[:] = 200, 0, 0
    assert photometric.distort(red, IDENTITY._replace(hue=15))[0, 0].tolist() == [200, 100, 0]  # 30 degrees: orange
    assert photometric.distort(red, IDENTITY._replace(hue=-15))[0, 0].tolist() == [200, 0, 100]  # across 0


def test_saturation_moves_colors_to_gray_and_away():
    image = np.zeros((2, 2, 3), np.uint8)
    image[:] = 200, 100, 100
    less, more = (photometric.distort(image, IDENTITY._replace(saturation=factor))[0, 0] for factor in (0.5, 1.5))
    assert less[0] == more[0] == 200 and less[1] == less[2] and abs(int(less[1]) - 150) <= 2
    assert abs(int(more[1]) - 50) <= 2


def test_the_order_of_contrast_matters():
    image, params = random_image(), DistortionParams(None, 1.4, True, 1.4, 10)
    assert not np.array_equal(
        photometric.distort(image, params), photometric.distort(image, params._replace(contrast_first=False))
    )


def test_the_distribution_of_the_draws():
    rng = np.random.default_rng(0)
    draws = [photometric.draw_params(rng) for _ in range(4000)]
    for key in ("brightness", "contrast", "saturation", "hue"):
        assert abs(np.mean([getattr(params, key) is None for params in draws]) - 0.5) < 0.03, key
    assert abs(np.mean([params.contrast_first for params in draws]) - 0.5) < 0.03
    assert {params.hue for params in draws if params.hue is not None} == set(range(-18, 18))  # upstream never draws 18
    for key, low, high in (("brightness", -32, 32), ("contrast", 0.5, 1.5), ("saturation", 0.5, 1.5)):
        values = np.array([getattr(params, key) for params in draws if getattr(params, key) is not None])
        assert values.min() >= low and values.max() <= high
        assert np.allclose(
            np.quantile(values, [0.1, 0.5, 0.9]),
            low + (high - low) * np.array([0.1, 0.5, 0.9]),
            atol=0.04 * (high - low),
        )
    # Steps are independent: all 16 combinations are about equally frequent.
    combinations = np.array(
        [
            [value is None for value in (params.brightness, params.contrast, params.saturation, params.hue)]
            for params in draws
        ]
    ) @ [1, 2, 4, 8]
    assert np.bincount(combinations, minlength=16).min() > 180


def test_a_draw_is_a_function_of_the_generator():
    assert photometric.draw_params(np.random.default_rng(7)) == photometric.draw_params(np.random.default_rng(7))
