"""Rounding in excess: of values and gradients in fp32 and in 16 bits, and types that are others."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers import proofs
from zoo.compare.rounding import _deviations, excess_rounding, in_another_type
from zoo.parity.differences import differences


@pytest.fixture
def right():
    return proofs.make(proofs.RIGHT)


def test_rounding_in_excess_is_found():
    fp64, fp32 = proofs.planted(is_coarse=True)
    assert not any(d.is_beyond for d in differences(fp64, fp32))
    found = [d for d in excess_rounding(fp64, fp32) if d.is_beyond]
    assert (found[0].event.name, found[0].event.part, found[0].apart) == ("stage.conv", "output", ("paddle",))
    assert 1e-5 < found[0].relative < 1e-2


def test_no_rounding_in_excess(right):
    found = excess_rounding(*right)
    assert not any(d.is_beyond or d.apart for d in found) and len(found) == 2 * 10 + 1 + 2 + 5  # gradients last
    stages = {(d.event.stage, d.event.part) for d in found}
    assert ("update 2", "gradient") not in stages and ("update 2", "loss") not in stages


@pytest.mark.parametrize("factor, is_found", [(1.01, False), (1.05, True), (-1.0, True)])
def test_a_gradient_of_another_length_in_fp32_is_found(right, factor, is_found):
    fp64, fp32 = right
    key = next(key for key in fp64["torch"].shapes if key.startswith("update 1/gradient/stage.conv"))
    changed = {**fp32["torch"].excerpts, key: factor * fp32["torch"].excerpts[key]}
    fp32 = {**fp32, "torch": fp32["torch"]._replace(excerpts=changed)}
    found = [d for d in excess_rounding(fp64, fp32) if d.is_beyond]
    assert [d.apart for d in found] == [("torch",)] * is_found


@pytest.mark.parametrize(
    "factors, apart",
    [
        ({"torch": 1.1, "paddle": 1.015, "mindspore": 1.015}, ()),
        ({"torch": 1.5, "paddle": 1.015, "mindspore": 1.015}, ("torch",)),
        ({"torch": 1.05, "paddle": 1.05, "mindspore": 1.05}, ("torch", "paddle", "mindspore")),  # a fault of all
    ],
)
def test_a_gradient_that_all_round_much(right, factors, apart):
    fp64, fp32 = right
    key = next(key for key in fp64["torch"].shapes if key.startswith("update 1/gradient/stage.conv"))
    for title, factor in factors.items():
        fp32 = proofs.edit(fp32, title, key, lambda values, factor=factor: factor * values)
    found = [d.apart for d in excess_rounding(fp64, fp32) if d.is_beyond]
    assert [{*titles} for titles in found] == [{*apart}] * bool(apart)


@pytest.mark.parametrize(
    "usual, largest, factor, is_found",
    [
        (0.0, 1.0, 1.1, True),  # no kink was crossed
        (0.005, 1.0, 1.1, True),
        (0.02, 1.0, 1.1, False),
        (0.02, 1.0, 1.15, True),
        (0.02, 9.0, 1.15, False),  # nearly all of it lies along one large number
    ],
)
def test_gradients_that_differ_as_much_at_nearby_weights(usual, largest, factor, is_found, right):
    """There, all differ by 0.02; those of this run by `usual`, and that of a layer by more."""
    fp64, fp32 = right
    key = "update 1/gradient/fc.weight"
    gradient = np.ones(fp64["torch"].shapes[key])
    gradient.flat[0] = largest
    for title in fp64:
        fp64 = proofs.edit(fp64, title, key, lambda values: gradient)
        fp32 = proofs.edit(fp32, title, key, lambda values: gradient)
    signs = {"stage.conv.weight": -1, "stage.bn.weight": 1, "stage.bn.bias": -1, "fc.bias": 1}
    for name, sign in signs.items():
        fp32 = proofs.edit(
            fp32, "torch", f"update 1/gradient/{name}", lambda values, sign=sign: (1 + sign * usual) * values
        )
    fp32 = proofs.edit(fp32, "torch", key, lambda values: factor * values)
    fp32["torch"].settings["spread"] = {"fp32": dict.fromkeys((*signs, "fc.weight"), 0.02)}
    found = [d.apart for d in excess_rounding(fp64, fp32) if d.is_beyond]
    assert found == [("torch",)] * is_found


def test_a_factor_of_all_gradients_in_fp32_is_not_that_of_kinks(right):
    fp64, fp32 = right
    names = [key.rpartition("/")[2] for key in fp64["torch"].shapes if key.startswith("update 1/gradient/")]
    for name in names:
        fp32 = proofs.edit(fp32, "torch", f"update 1/gradient/{name}", lambda values: 1.015 * values)
    fp32["torch"].settings["spread"] = {"fp32": dict.fromkeys(names, 0.1)}
    assert any(d.is_beyond for d in excess_rounding(fp64, fp32))


def test_the_gradient_of_one_number_may_be_rounded_more(right):
    fp64, fp32 = right
    key = next(key for key in fp64["torch"].shapes if key.startswith("update 1/gradient/stage.conv"))
    for shape, is_found in (((1,), False), ((2,), True)):
        of_one = {t: r._replace(shapes={**r.shapes, key: shape}) for t, r in fp64.items()}
        scaled = proofs.edit(fp32, "torch", key, lambda values: 1.05 * values)
        found = [d.apart for d in excess_rounding(of_one, scaled) if d.is_beyond]
        assert found == [("torch",)] * is_found


@pytest.mark.parametrize("factor, is_found", [(0.95, False), (0.8, True)])
def test_a_factor_of_all_gradients_in_16_bits_is_found(right, factor, is_found):
    fp64, fp32 = right
    keys = [key for key in fp64["torch"].shapes if key.startswith("update 1/gradient/")]
    scaled = {key: factor * fp32["torch"].excerpts[key] for key in keys}
    mixed = fp32["torch"]._replace(precision="bf16", excerpts={**fp32["torch"].excerpts, **scaled})
    found = [d for d in excess_rounding(fp64, {"torch": mixed}, fp32) if d.is_beyond]
    assert bool(found) == is_found and {d.event.part for d in found} <= {"gradient"}


@pytest.mark.parametrize(
    "usual, nearby, factor, is_found",
    [
        (0.0, 0.2, 1.3, True),
        (0.05, 0.2, 1.3, False),  # of 0.05 / 0.1 * 0.2 four times as much: 0.4
        (0.05, 0.2, 1.5, True),
        (0.05, 0.02, 1.15, False),  # what is never reported
        (0.05, 0.02, 1.35, True),
        (0.2, 0.2, 1.7, False),  # no more than at nearby weights
        (0.2, 0.2, 1.9, True),
    ],
)
def test_gradients_in_16_bits_that_differ_as_much_at_nearby_weights(usual, nearby, factor, is_found, right):
    """There, all differ by 0.1, that of a scale by `nearby`; those of this run by `usual`, that one by more."""
    fp64, fp32 = right
    factors = {"stage.conv.weight": 1 - usual, "fc.weight": 1 + usual, "stage.bn.bias": 1 - usual, "fc.bias": 1 + usual}
    factors["stage.bn.weight"] = factor  # of few numbers: rounding may lie along them
    keys = {f"update 1/gradient/{name}": each for name, each in factors.items()}
    mixed = {
        "torch": fp32["torch"]._replace(
            precision="fp16",
            excerpts={key: keys.get(key, 1.0) * values for key, values in fp64["torch"].excerpts.items()},
        )
    }
    fp32["torch"].settings["spread"] = {"fp16": {**dict.fromkeys(factors, 0.1), "stage.bn.weight": nearby}}
    found = [d for d in excess_rounding(fp64, mixed, fp32) if d.is_beyond]
    assert bool(found) == is_found and {d.event.name for d in found} <= {"stage.bn.weight"}


def in_16_bits(fp64, change):
    """Return records in fp16 whose values are those of fp64, rounded and changed: change(title, key, values)."""
    return {
        title: record._replace(
            precision="fp16",
            excerpts={
                key: change(title, key, values.astype(np.float16).astype(np.float64))
                for key, values in record.excerpts.items()
            },
        )
        for title, record in fp64.items()
    }


@pytest.mark.parametrize("factors, found", [((1.15, 1.15), ()), ((1.15, 1.0), ("torch", "paddle")), ((1.03, 1.0), ())])
def test_gradients_in_one_16_bit_type_are_compared_with_each_other(factors, found, right):
    """Rounding that both frameworks have is that of the type; of two that part, either may be wrong."""
    of_two = [{title: records[title] for title in ("torch", "paddle")} for records in right]
    scale = dict(zip(("torch", "paddle"), factors))
    mixed = in_16_bits(of_two[0], lambda title, key, x: x * scale[title] if key == "update 1/gradient/fc.weight" else x)
    apart = [d.apart for d in excess_rounding(of_two[0], mixed, of_two[1]) if d.is_beyond]
    assert apart == [found] * bool(found)


def test_outputs_that_are_rounded_by_more_than_in_another_framework(right):
    fp64, fp32 = right

    def change(title, key, values):
        is_coarse = title == "torch" and key.startswith("training/3/out")
        return values + is_coarse * 0.01 * np.abs(values).max()  # 10 units, within what a framework alone may have

    found = [d for d in excess_rounding(fp64, in_16_bits(fp64, change), fp32) if d.is_beyond]
    assert [d.apart for d in found] == [("torch",)] and found[0].event.name == "stage.bn"


@pytest.mark.parametrize("units_in_fp32, is_found", [(0, True), (100, False)])
def test_outputs_of_a_network_that_amplifies_rounding(units_in_fp32, is_found, right):
    fp64, fp32 = right

    def moved(units):
        return lambda title, key, x: x + key.startswith("training/3/out") * units * np.abs(x).max()

    for title, record in fp32.items():
        in_fp32 = {key: moved(units_in_fp32 * 2.0**-23)(title, key, x) for key, x in record.excerpts.items()}
        fp32 = {**fp32, title: record._replace(excerpts=in_fp32)}
    mixed = in_16_bits(fp64, moved(50 * 2.0**-10))
    assert any(d.is_beyond for d in excess_rounding(fp64, mixed, fp32)) == is_found


def test_a_framework_that_computes_in_another_type(right):
    fp64, fp32 = right
    mixed = in_16_bits(fp64, lambda title, key, values: values)
    assert in_another_type(mixed) == []
    assert in_another_type({**mixed, "paddle": fp32["paddle"]._replace(precision="fp16")}) == ["paddle"]
    assert in_another_type({**mixed, "torch": mixed["torch"]._replace(precision="bf16")}) == ["torch"]


@pytest.mark.parametrize(
    "gradient, along, away",
    [
        ([np.cos(0.5), np.sin(0.5)], 0.0, 2 * np.sin(0.25)),  # turned
        ([0.5, 0.0], -0.375, 0.5),  # half as long
        ([1.5, 0.0], 0.5, 0.5),
        ([1.0, 0.3], 0.0, 0.3),
    ],
)
def test_a_gradient_that_turns_is_not_shorter(gradient, along, away):
    proof, rounded = (SimpleNamespace(get=lambda key, x=x: np.array(x)) for x in ([1.0, 0.0], gradient))
    np.testing.assert_allclose(_deviations(proof, rounded, "key"), [along, away], atol=1e-12)


@pytest.mark.parametrize("factor, along", [(1.0, 0.0), (1.5, 0.3), (0.5, -0.3)])
def test_either_of_two_gradients_may_turn(factor, along):
    turned, straight = [np.cos(0.5), np.sin(0.5)], [factor, 0.0]
    proof, *pair = (SimpleNamespace(get=lambda key, x=x: np.array(x)) for x in ([1.0, 0.0], straight, turned))
    for one, other, sign in ((*pair, 1), (*reversed(pair), -1)):
        found = _deviations(proof, one, "key", other)[0]
        assert found == 0 if factor == 1 else 0 < found / (sign * along) < 2
