"""Random erasing and cutout: rectangles and pixels of torchvision, timm and mmsegmentation for their draws."""

import math

import numpy as np
import pytest

from tests.data.augment.golden import Scripted
from zoo.data.augment.erasing import MAX_TRIES, draw_box, random_cutout, random_erasing

SCALE, RATIO = (0.02, 1 / 3), (0.3, 10 / 3)


@pytest.mark.parametrize("upstream", ["torchvision", "timm"])
def test_rectangles_of_recorded_draws_are_upstream_s(golden, upstream):
    tried_twice = 0
    for *uniforms, top, left, height, width in golden[f"erasing/{upstream}"]:
        draws = [value for value in uniforms if not math.isnan(value)]
        tried_twice += len(draws) == 4
        rng = Scripted(*draws, top, left)
        assert draw_box(20, 16, SCALE, RATIO, rng) == (left, top, width, height)
        assert rng.draws == []
    assert tried_twice


def test_areas_ratios_and_places_are_distributed_as_upstream_says(target):
    rng = np.random.default_rng(0)
    boxes = np.array([draw_box(2000, 1600, (0.02, 0.2), (0.5, 2.0), rng) for _ in range(3000)])
    left, top, width, height = boxes.T
    area, log_ratio = width * height / (2000 * 1600), np.log(height / width)
    assert area.min() < 0.022 and area.max() > 0.198 and area.mean() == pytest.approx(0.11, abs=0.004)
    assert log_ratio.mean() == pytest.approx(0, abs=0.03) and np.abs(log_ratio).max() == pytest.approx(
        math.log(2), 0.01
    )
    for place, room in ((left, 2000 - width), (top, 1600 - height)):
        assert (place / room).mean() == pytest.approx(0.5, abs=0.02)


def test_a_quarter_of_the_images_is_erased(target):
    rng = np.random.default_rng(0)
    erased = sum(random_erasing(target, rng) is not None for _ in range(4000)) / 4000
    assert erased == pytest.approx(0.25, abs=0.028)


def test_erased_pixels_are_the_mean_or_noise(golden, target):
    image, before = golden["image"], golden["image"].copy()
    draws = (0.1, 0.25, 0.0, 3, 5)  # area 80, aspect ratio 1: a square of 9 pixels
    mean = random_erasing(target, Scripted(*draws)).image(image)
    assert (mean[3:12, 5:14] == target.mean_bytes).all() and np.array_equal(image, before)
    mean[3:12, 5:14] = image[3:12, 5:14]
    np.testing.assert_array_equal(mean, image)
    values = np.random.default_rng(0).standard_normal((9, 9, 3))
    noise = random_erasing(target, Scripted(*draws, values), value="noise").image(image)[3:12, 5:14]
    normalized = (noise / 255 - target.mean) / target.std
    inside = (noise > 0) & (noise < 255)
    np.testing.assert_allclose(normalized[inside], values[inside], atol=0.5 / 255 / 0.22)
    assert inside.mean() > 0.9


def test_no_rectangle_fits(target):
    uniforms = [1.0, 0.0] * MAX_TRIES  # a square of the area of 20 x 16 is higher than 16
    assert draw_box(20, 16, (1.0, 1.0), (1.0, 1.0), Scripted(*uniforms)) is None


@pytest.mark.parametrize("number", [0, 1])
def test_holes_are_mmsegmentation_s(golden, target, number):
    holes = golden[f"cutout/{number}/holes"]
    rng = Scripted(0.4, len(holes), *holes.ravel())
    drawn = random_cutout(target, rng, holes=(1, 2), size=(0.25, 0.5), label="ignore")
    assert rng.draws == []
    np.testing.assert_array_equal(drawn.image(golden["image"]), golden[f"cutout/{number}/image"])
    np.testing.assert_array_equal(drawn.label(golden["mask"]), golden[f"cutout/{number}/label"])


def test_labels_below_holes_are_kept_by_default(target):
    assert random_cutout(target, Scripted(0.4, 1, 2, 3)).label is None
    assert random_cutout(target, Scripted(0.5, 1, 2, 3)) is None
