"""RandAugment and TrivialAugment: torchvision's magnitudes and pixels for its draws; how ours are distributed."""

from collections import Counter

import numpy as np
import pytest

from tests.data.augment.golden import Scripted
from zoo.data.augment import policies
from zoo.data.augment.policies import rand_augment, trivial_augment

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
