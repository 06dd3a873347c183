"""Pixels of every augmentation: those of upstream projects for their draws, and how ours are distributed."""

import math
from collections import Counter

import numpy as np
import pytest

from tests.data.augment.conftest import Scripted
from tests.helpers.paths import GOLDEN
from zoo.data.augment import policies
from zoo.data.augment.colors import (
    DistortionParams,
    color_jitter,
    distort,
    draw_params,
    gaussian_blur,
    grayscale,
    photometric_distortion,
)
from zoo.data.augment.erasing import MAX_TRIES, draw_box, random_cutout, random_erasing
from zoo.data.augment.moves import horizontal_flip, multi_scale_crop, random_resized_crop, random_rotate, vertical_flip
from zoo.data.augment.policies import rand_augment, trivial_augment
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


RAND_LIMITS = policies.Limits(0.3, 150 / 331 * 20, 150 / 331 * 16, 30, 0.9, 4)  # of images of 20 x 16
LIMITS = {"rand": RAND_LIMITS, "trivial": policies.TRIVIAL_LIMITS}
FILL = {"rand": (0, 0, 0), "trivial": (124, 116, 104)}


def value_of(function):
    """The parameter of an operation; 0 of one that has none."""
    return function.args[1] if hasattr(function, "args") else 0


@pytest.mark.parametrize("policy", ["rand", "trivial"])
def test_magnitudes_are_upstream_s(golden, policy):
    for name, magnitudes in zip(policies.NAMES, golden[f"{policy}/magnitudes"], strict=True):
        ours = [value_of(policies.operation(name, m, 1, LIMITS[policy], {})) for m in range(policies.BINS)]
        if name.startswith("translate"):
            magnitudes = np.trunc(magnitudes)
        if name in policies.ENHANCEMENTS:
            magnitudes = 1 + magnitudes
        np.testing.assert_array_equal(ours, magnitudes, err_msg=name)


@pytest.mark.parametrize("policy", ["rand", "trivial"])
def test_pixels_of_every_operation_are_upstream_s(golden, policy):
    image, keys = golden["image"], [key.split("/") for key in golden if key.startswith(f"{policy}/")]
    cases = [key for key in keys if key[1] in ("nearest", "bilinear")]
    assert {policies.NAMES[int(number)] for _, _, number, _, _ in cases} == set(policies.NAMES)
    for _, interpolation, number, magnitude, sign in cases:
        key = {"interpolation": interpolation, "fill": FILL[policy]}
        function = policies.operation(policies.NAMES[int(number)], int(magnitude), int(sign), LIMITS[policy], key)
        expected = golden[f"{policy}/{interpolation}/{number}/{magnitude}/{sign}"]
        np.testing.assert_array_equal(function(image), expected, err_msg=f"{policies.NAMES[int(number)]} {magnitude}")


@pytest.mark.parametrize("seed", range(8))
def test_chains_of_recorded_draws_are_rand_augment_s(golden, target, seed):
    rng = Scripted(*golden[f"rand/chain/{seed}/draws"])
    drawn = rand_augment(target, rng, n=3, m=13)
    assert rng.draws == []
    np.testing.assert_array_equal(drawn.image(golden["image"]), golden[f"rand/chain/{seed}/result"])


@pytest.mark.parametrize("seed", range(8))
def test_operations_of_recorded_draws_are_trivial_augment_s(golden, target, seed):
    draws = list(golden[f"trivial/chain/{seed}/draws"])
    if len(draws) == 1:
        draws.append(7)  # an operation without a magnitude: upstream draws none
    rng = Scripted(*draws)
    drawn = trivial_augment(target, rng)
    assert rng.draws == []
    np.testing.assert_array_equal(drawn.image(golden["image"]), golden[f"trivial/chain/{seed}/result"])


def test_operations_and_signs_are_drawn_evenly():
    rng = np.random.default_rng(0)
    names = Counter(policies.draw_operation(rng) for _ in range(14 * 1000))
    assert set(names) == set(policies.NAMES) and all(880 < count < 1120 for count in names.values())  # 4 sigma: 122
    assert 430 < sum(policies.draw_sign("rotate", rng) > 0 for _ in range(1000)) < 570
    assert {policies.draw_sign("equalize", rng) for _ in range(100)} == {1}


def test_the_fill_may_be_the_mean(golden, target):
    moved = policies.NAMES.index("translate_x")
    drawn = rand_augment(target, Scripted(moved, 1, 0), n=1, m=30, fill="mean")  # 9 pixels to the left
    result = drawn.image(golden["image"])
    np.testing.assert_array_equal(result[:, :11], golden["image"][:, 9:])
    assert (result[:, 11:] == target.mean_bytes).all()
