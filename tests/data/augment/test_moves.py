"""Augmentations that move pixels: rotation, flips and crops, of images and masks together."""

import numpy as np
import pytest

from tests.data.augment.golden import Scripted
from zoo.data.augment.moves import horizontal_flip, multi_scale_crop, random_resized_crop, random_rotate, vertical_flip
from zoo.data.transforms.clips import multi_scale_box
from zoo.data.transforms.geometry import random_box


def test_rotated_images_and_masks_are_mmsegmentation_s(golden, target):
    for number, degrees in enumerate(golden["rotate/degrees"]):
        drawn = random_rotate(target, Scripted(0.4, degrees))
        np.testing.assert_array_equal(drawn.label(golden["mask"]), golden[f"rotate/{number}/label"])
        difference = drawn.image(golden["image"]).astype(int) - golden[f"rotate/{number}/image"]
        assert np.abs(difference).max() <= 1  # OpenCV's versions interpolate with another rounding
    assert random_rotate(target, Scripted(0.5, 1.0)) is None


def test_angles_are_uniform(target):
    rng = np.random.default_rng(0)
    drawn = [random_rotate(target, rng, degrees=(-30.0, 10.0)) for _ in range(4000)]
    angles = np.array([step.image.keywords["degrees"] for step in drawn if step])
    assert len(angles) == pytest.approx(2000, abs=127) and angles.mean() == pytest.approx(-10, abs=1.1)
    assert -30 <= angles.min() < -29.8 and 9.8 < angles.max() <= 10


@pytest.mark.parametrize("function, axis, mirrored", [(horizontal_flip, 1, True), (vertical_flip, 0, False)])
def test_flips_turn_images_and_masks(golden, target, function, axis, mirrored):
    drawn = function(target, Scripted(0.49))
    np.testing.assert_array_equal(drawn.image(golden["image"]), np.flip(golden["image"], axis))
    np.testing.assert_array_equal(drawn.label(golden["mask"]), np.flip(golden["mask"], axis))
    assert drawn.mirrored is mirrored and function(target, Scripted(0.5)) is None
    assert function(target, Scripted(0.89), p=0.9)


def test_crops_are_those_of_the_standard_sets(target):
    def rng():
        return np.random.default_rng(5)

    geometry = random_resized_crop((500, 375), target, rng(), scale=(0.2, 0.5))
    assert geometry.box == random_box(500, 375, (0.2, 0.5), (3 / 4, 4 / 3), rng()) and geometry.size == (20, 16)
    square = target._replace(width=16)
    geometry = multi_scale_crop((340, 256), square, rng(), scales=(1.0, 0.5))
    assert geometry.box == multi_scale_box(340, 256, 16, (1.0, 0.5), rng()) and geometry.size == (16, 16)
