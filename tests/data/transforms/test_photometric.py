"""The photometric distortion: upstream's recorded pixels for upstream's draws, rounding, and the law of the draws."""

import math

import numpy as np
import pytest

from data.transforms import photometric
from data.transforms.photometric import DistortionParams
from tests.helpers.paths import GOLDEN

NOTHING = DistortionParams(None, None, False, None, None)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "mmseg_transforms.npz") as file:
        return {name: file[name] for name in file.files}


def as_draw(row):
    brightness, contrast, first, saturation, hue = (None if math.isnan(value) else float(value) for value in row)
    return DistortionParams(brightness, contrast, bool(first), saturation, None if hue is None else int(hue))


def noise(seed=0, size=(30, 40)):
    return np.random.default_rng(seed).integers(0, 256, size + (3,), dtype=np.uint8)


def test_upstreams_pixels_for_upstreams_draws(golden):
    image, before = golden["photometric/image"], golden["photometric/image"].copy()
    combinations = set()
    for row, want in zip(golden["photometric/draws"], golden["photometric/results"]):
        how = as_draw(row)
        assert np.array_equal(photometric.distort(image, how), want), how
        combinations.add(
            (
                how.brightness is None,
                how.contrast is None or how.contrast_first,
                how.contrast is None,
                how.saturation is None,
                how.hue is None,
            )
        )
    assert len(combinations) == 24 and np.array_equal(image, before)
    assert np.abs(golden["photometric/results"].astype(int) - image).max(axis=(1, 2, 3)).min() == 0  # one is untouched


@pytest.mark.parametrize(
    "how, value, want",
    [
        (NOTHING._replace(brightness=31.99), 100, 131),
        (NOTHING._replace(brightness=-31.99), 100, 68),
        (NOTHING._replace(brightness=-0.5), 0, 0),
        (NOTHING._replace(brightness=32.0), 240, 255),
        (NOTHING._replace(contrast=1.499), 101, 151),
        (NOTHING._replace(contrast=0.5, contrast_first=True), 101, 50),
        (NOTHING._replace(brightness=0.9, contrast=1.5), 3, 4),  # 3.9 becomes 3 before it becomes 4.5
        (NOTHING._replace(contrast=0.99999999), 100, 100),  # a 1 in 32 bits, which upstream computes in
        (NOTHING._replace(saturation=1.5), 77, 77),
        (NOTHING._replace(hue=-18), 77, 77),
    ],
)
def test_every_step_rounds_down_and_clips_on_grey(how, value, want):
    image = np.full((4, 5, 3), value, np.uint8)
    assert np.array_equal(photometric.distort(image, how), np.full((4, 5, 3), want, np.uint8))


def test_hue_turns_colours_and_keeps_their_value():
    red = np.zeros((2, 2, 3), np.uint8)
    red[:] = 200, 0, 0
    assert photometric.distort(red, NOTHING._replace(hue=15))[0, 0].tolist() == [200, 100, 0]  # 30 degrees: orange
    assert photometric.distort(red, NOTHING._replace(hue=-15))[0, 0].tolist() == [200, 0, 100]  # and over the 0


def test_saturation_moves_towards_grey_and_away():
    image = np.zeros((2, 2, 3), np.uint8)
    image[:] = 200, 100, 100
    less, more = (photometric.distort(image, NOTHING._replace(saturation=factor))[0, 0] for factor in (0.5, 1.5))
    assert less[0] == more[0] == 200 and less[1] == less[2] and abs(int(less[1]) - 150) <= 2
    assert abs(int(more[1]) - 50) <= 2


def test_the_place_of_contrast_matters():
    image, how = noise(), DistortionParams(None, 1.4, True, 1.4, 10)
    assert not np.array_equal(
        photometric.distort(image, how), photometric.distort(image, how._replace(contrast_first=False))
    )


def test_the_law_of_the_draws():
    rng = np.random.default_rng(0)
    draws = [photometric.draw_params(rng) for _ in range(4000)]
    for key in ("brightness", "contrast", "saturation", "hue"):
        assert abs(np.mean([getattr(how, key) is None for how in draws]) - 0.5) < 0.03, key
    assert abs(np.mean([how.contrast_first for how in draws]) - 0.5) < 0.03
    assert {how.hue for how in draws if how.hue is not None} == set(range(-18, 18))  # upstream never draws 18
    for key, low, high in (("brightness", -32, 32), ("contrast", 0.5, 1.5), ("saturation", 0.5, 1.5)):
        values = np.array([getattr(how, key) for how in draws if getattr(how, key) is not None])
        assert values.min() >= low and values.max() <= high
        assert np.allclose(
            np.quantile(values, [0.1, 0.5, 0.9]),
            low + (high - low) * np.array([0.1, 0.5, 0.9]),
            atol=0.04 * (high - low),
        )
    # steps come independently: all 16 combinations about equally often
    kinds = np.array(
        [[value is None for value in (how.brightness, how.contrast, how.saturation, how.hue)] for how in draws]
    ) @ [1, 2, 4, 8]
    assert np.bincount(kinds, minlength=16).min() > 180


def test_a_draw_is_a_function_of_the_generator():
    assert photometric.draw_params(np.random.default_rng(7)) == photometric.draw_params(np.random.default_rng(7))
