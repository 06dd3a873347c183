"""The check of updates and moving averages: SGD written out here, right and with one slip at a time."""

from dataclasses import replace

import numpy as np
import pytest

from zoo.compare import formulas
from zoo.compare.causes import of_update
from zoo.optim import adamw, lars, sgd_nesterov
from zoo.optim.base import Math
from zoo.optim.ema import Ema
from zoo.optim.sgd import Settings
from zoo.parity.record import ROUNDING_UNITS
from zoo.trainer import numpy_ops
from zoo.trainer.plan import ParamGroup, Plan

LR, MOMENTUM, DECAY = 0.1, 0.9, 1e-2
GROUPS = {
    "conv.weight": ParamGroup(1.0, DECAY),
    "fc.weight": ParamGroup(5.0, DECAY),
    "fc.bias": ParamGroup(10.0, 0.0),
    "shard": ParamGroup(1.0, DECAY),
    "frozen": ParamGroup(0.0, 0.0),
}
SHAPES = {"conv.weight": (4, 3, 3, 3), "fc.weight": (5, 4), "fc.bias": (5,), "shard": (6, 4), "frozen": (3,)}
TRAINED = [name for name in GROUPS if name != "frozen"]
DECAYED = {"conv.weight", "fc.weight", "shard"}


def plan(**settings):
    return Plan((), (), GROUPS.__getitem__, optimizer=Settings(momentum=MOMENTUM), **settings)


def norm(gradients, names):
    return np.sqrt(sum((gradients[name].astype(np.float64) ** 2).sum() for name in names))


class Update:
    """An update by SGD with slips.

    Attributes:
        gradient_scale, decay_scale, dampening: factors, or functions of the factor of clipping.
        decay, lr_scale: instead of the parameter's.
        momentum, nesterov: of the optimizer.
        only: names of the parameters with the slip.
    """

    def __init__(self, only=None, **changes):
        self.only, self.changes, self.clips = only, changes, []

    def __call__(self, name, weight, buffer, gradient, group, clip):
        self.clips.append(clip)
        slip = self.changes if self.only is None or name in self.only else {}
        slip = {key: value(clip) if callable(value) else value for key, value in slip.items()}
        gradient = clip * slip.get("gradient_scale", 1.0) * gradient
        decay = slip.get("decay", group.weight_decay) * slip.get("decay_scale", 1.0)
        total = slip.get("dampening", 1.0) * (gradient + decay * weight)
        momentum = slip.get("momentum", MOMENTUM)
        buffer = momentum * buffer + total
        step = total + momentum * buffer if slip.get("nesterov") else buffer
        return weight - LR * slip.get("lr_scale", group.lr_scale) * step, buffer


def run(rule, clip_norm=0.5, clip_sharded=True, precision="fp64", steps=2, names=TRAINED, norm_rounding=0.0):
    """Return what the check says of each update of a rule, which is given the rightful clip factor too."""
    rng = np.random.default_rng(0)
    dtype = {"fp64": np.float64, "fp32": np.float32}[precision]
    weights = {name: rng.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}
    buffers = {name: np.zeros_like(value) for name, value in weights.items()}
    results = []
    for _ in range(steps):
        gradients = {name: rng.standard_normal(SHAPES[name]).astype(dtype) for name in names}
        clipped = [name for name in names if clip_sharded or name != "shard"]
        limit = min(1.0, clip_norm / norm(gradients, clipped)) if clip_norm else 1.0
        before = {**weights, **{f"optimizer/momentum/{name}": value for name, value in buffers.items()}}
        for name in names:
            clip = dtype(limit if name in clipped else 1.0)
            group = ParamGroup(*map(dtype, GROUPS[name]))
            weights[name], buffers[name] = (
                np.asarray(value, dtype)
                for value in rule(name, weights[name], buffers[name], gradients[name], group, clip)
            )
        settings = plan(clip_norm=clip_norm, clip_sharded=clip_sharded)
        total, unit = norm(gradients, names), ROUNDING_UNITS[precision]
        arguments = settings, {"shard"}, LR, before, weights, gradients, total, unit, norm_rounding
        results.append(formulas.check(*arguments))
    return results


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("clip_norm", [None, 0.5, 1e3])
@pytest.mark.parametrize("clip_sharded", [True, False])
def test_the_formula_is_accepted(precision, clip_norm, clip_sharded):
    assert run(Update(), clip_norm, clip_sharded, precision, 4, list(GROUPS)) == [{}] * 4


@pytest.mark.parametrize("clip_sharded", [True, False])
@pytest.mark.parametrize("precision, rounding", [("fp64", 1e-12), ("fp32", 9e-4)])
def test_the_rounding_of_the_norm_is_no_deviation(precision, rounding, clip_sharded):
    """A norm of millions of numbers is rounded by more than its last bit; a larger difference is a deviation."""
    rounded = Update(gradient_scale=lambda clip: 1 + rounding if clip < 1 else 1.0)
    options = dict(clip_sharded=clip_sharded, precision=precision, steps=1)
    (found,) = run(rounded, **options)
    assert "fc.bias" in found and ("shard" not in found or clip_sharded)
    for measured, is_silent in ((rounding, True), (rounding / 8, False)):
        (found,) = run(rounded, **options, norm_rounding=measured)
        assert (found == {}) == is_silent
    (found,) = run(Update(gradient_scale=1 + rounding), **options, clip_norm=None, norm_rounding=rounding)
    assert found  # nothing is clipped


SLIPS = {  # slip: update in which it is certain, kind and value of the factor by parameter, and the cause in words
    "lr_scale=1": (
        0,
        "lr",
        {"fc.weight": 1 / 5, "fc.bias": 1 / 10},
        "the learning rate is 0.2 times the expected one (fc.weight); "
        "the learning rate is 0.1 times the expected one (fc.bias)",
    ),
    "decay_scale=0.5": (0, "decay", dict.fromkeys(DECAYED, DECAY / 2), "the weight decay is 0.005 instead of 0.01 "),
    "decay_scale=0": (0, "decay", dict.fromkeys(DECAYED, 0.0), "the weight decay is 0 instead of 0.01 "),
    "decay=0.01": (0, "decay", {"fc.bias": DECAY}, "the weight decay is 0.01 instead of 0 (fc.bias)"),
    "momentum=0.8": (1, "momentum", dict.fromkeys(TRAINED, 8 / 9), "the momentum is 0.8 instead of 0.9 "),
    "momentum=0": (1, "momentum", dict.fromkeys(TRAINED, 0.0), "the momentum is 0 instead of 0.9 "),
    "nesterov=1": (1, "nesterov", dict.fromkeys(TRAINED, 1.0), "Nesterov momentum "),
    "dampening=0.1": (1, "dampening", dict.fromkeys(TRAINED, 0.1), "are added to the momentum 0.1 times: dampening "),
}


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("precision, rel", [("fp64", 1e-9), ("fp32", 1e-3)])
def test_slips_are_found_with_their_factor_and_named(slip, precision, rel):
    step, kind, expected, cause = SLIPS[slip]
    name, _, value = slip.partition("=")
    results = run(Update(**{name: float(value)}), precision=precision)
    found = results[step]
    assert found.keys() == expected.keys() and (step == 0 or name != "momentum" or results[0] == {})
    for name, factor in expected.items():
        assert found[name]["factors"][kind] == pytest.approx(factor, rel=rel, abs=rel * DECAY)
        assert found[name]["decay"] == GROUPS[name].weight_decay
        if step == 1 and name in DECAYED:  # once momentum counts, nothing else explains it
            assert found[name]["factors"].keys() == {kind}
    assert precision == "fp32" or cause in of_update(results[1], MOMENTUM)  # rounded, 0 has other digits


@pytest.mark.parametrize("power", [1, -1])
def test_slips_of_clipping_are_a_factor_of_the_gradient(power):
    """Clipped twice, or not at all."""
    rule = Update(gradient_scale=lambda clip: clip**power)
    for number, found in enumerate(run(rule)):
        clip = rule.clips[number * len(TRAINED)]
        assert found.keys() == set(TRAINED) and clip < 0.1
        for deviation in found.values():
            assert deviation["factors"]["gradient"] == pytest.approx(clip**power, rel=1e-9)


def test_a_frozen_parameter_that_is_updated():
    for found in run(Update(["frozen"], lr_scale=1.0), names=list(GROUPS)):
        assert found.keys() == {"frozen"}
        assert found["frozen"]["factors"]["lr"] == pytest.approx(1.0)
        assert of_update(found, MOMENTUM) == "a frozen parameter is updated (frozen)"


@pytest.mark.parametrize("share, is_found", [(1.0, False), (0.9, True), (0.0, True)])
def test_a_decay_below_the_rounding_of_every_element_is_found(share, is_found):
    """It is 1e-7 of a weight, as much as the last bit, of 200,000 weights; the gradient is not larger."""
    rng = np.random.default_rng(0)
    before = {"w": rng.standard_normal(200_000).astype(np.float32), "optimizer/momentum/w": np.zeros(200_000)}
    decay, gradient = 1e-6, 1e-6 * rng.standard_normal(200_000).astype(np.float32)
    slope = gradient + share * decay * before["w"].astype(np.float64)
    weight = (before["w"] - 0.1 * slope).astype(np.float32)
    settings = Plan((), (), lambda name: ParamGroup(1.0, decay), optimizer=Settings(momentum=MOMENTUM))
    # The slot shows nothing here: it is the right one.
    after = {"w": weight, "optimizer/momentum/w": gradient + decay * before["w"].astype(np.float64)}
    arguments = before, after, {"w": gradient}, norm({"w": gradient}, ["w"]), ROUNDING_UNITS["fp32"]
    assert bool(formulas.check(settings, set(), 0.1, *arguments)) == is_found


@pytest.mark.parametrize("share, is_found", [(1 + 3e-7, False), (1 + 3e-4, True)])
def test_a_rounded_factor_of_clipping_is_no_deviation_of_a_decay_along_the_gradient(share, is_found):
    """As of fc.weight of `tsm_mobilenet_v2` in Paddle, where momentum opposes the gradient."""
    rng = np.random.default_rng(0)
    gradient, decay = rng.standard_normal(10_000), 1e-7
    length = norm({"w": gradient}, ["w"])
    before = {"w": gradient + rng.standard_normal(10_000), "optimizer/momentum/w": -0.5 / length * gradient}
    slope = share * 0.5 / length * gradient + decay * before["w"]
    slot = MOMENTUM * before["optimizer/momentum/w"] + slope
    after = {"w": before["w"] - LR * slot, "optimizer/momentum/w": slot}
    settings = Plan((), (), lambda name: ParamGroup(1.0, decay), clip_norm=0.5, optimizer=Settings(momentum=MOMENTUM))
    arguments = settings, set(), LR, before, after, {"w": gradient}, length, ROUNDING_UNITS["fp32"], 1e-7
    assert bool(formulas.check(*arguments)) == is_found


def test_a_rounded_factor_of_decoupled_decay_is_no_deviation():
    """AdamW's kernels multiply a weight by 1 - lr * decay, which has few digits of decay in fp32."""
    weight = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    zeros = {name: np.zeros_like(weight) for name in ("optimizer/mean/w", "optimizer/square/w")}
    settings = Plan((), (), lambda name: ParamGroup(1.0, 1e-4), optimizer=adamw.Settings())
    after = {**zeros, "w": weight * np.float32(1 - 1e-3 * 1e-4)}
    arguments = {**zeros, "w": weight}, after, {"w": zeros["optimizer/mean/w"]}, 0.0, ROUNDING_UNITS["fp32"]
    assert formulas.check(settings, set(), 1e-3, *arguments) == {}


@pytest.mark.parametrize("trust, is_found", [(1 + 4e-14, False), (1.001, True)])
def test_the_rounding_of_a_norm_for_lars_is_no_deviation(trust, is_found):
    """A sum of 147,456 squares, one after another."""
    spec, rng = lars.Settings(), np.random.default_rng(0)
    weight, gradient = rng.standard_normal((128, 128, 9)), rng.standard_normal((128, 128, 9))
    step, _ = spec.direction(Math(numpy_ops), weight, gradient, (np.zeros_like(weight),), 1e-4, 1)
    before = {"w": weight, "optimizer/momentum/w": np.zeros_like(weight)}
    after = {"w": weight - LR * trust * step, "optimizer/momentum/w": trust * step}
    settings = Plan((), (), lambda name: ParamGroup(1.0, 1e-4), optimizer=spec)
    found = formulas.check(settings, set(), LR, before, after, {"w": gradient}, 0.0, ROUNDING_UNITS["fp64"])
    assert bool(found) == is_found


def test_a_wrong_slot_is_found_though_the_weight_is_right():
    spec, rng = Settings(momentum=MOMENTUM), np.random.default_rng(0)
    before = {"w": rng.standard_normal((3, 4)), "optimizer/momentum/w": rng.standard_normal((3, 4))}
    gradient = rng.standard_normal((3, 4))
    slot = MOMENTUM * before["optimizer/momentum/w"] + gradient
    settings = Plan((), (), lambda name: ParamGroup(1.0, 0.0), optimizer=spec)
    after = {"w": before["w"] - LR * slot, "optimizer/momentum/w": slot * 1.01}
    arguments = settings, set(), LR, before, after, {"w": gradient}, norm({"w": gradient}, ["w"]), 2.0**-52
    found = formulas.check(*arguments)
    assert found["w"]["slot"] == "momentum" and "momentum does not follow" in of_update(found, MOMENTUM)
    assert formulas.check(*arguments[:4], {**after, "optimizer/momentum/w": slot}, *arguments[5:]) == {}


SPEC, APPLIED = Ema(0.9), 3  # a rate of 9 / 13
AVERAGED = ("a.weight", "a.running_mean")


def check_averages(rate, skipped=0.0, precision=2.0**-52, spec=SPEC):
    rng = np.random.default_rng(1)
    old, weights = ({name: rng.standard_normal((3, 4)) for name in AVERAGED} for _ in range(2))
    new = {name: old[name] + rate * (weights[name] - old[name]) for name in AVERAGED}
    before = {"scaler/skipped": np.array(1.0), **{f"ema/{name}": value for name, value in old.items()}}
    after = {"scaler/skipped": np.array(1.0 + skipped), **weights}
    after.update((f"ema/{name}", value) for name, value in new.items())
    return formulas.check_averages(spec, before, after, precision, APPLIED)


def test_an_average_by_the_formula_is_no_deviation():
    assert check_averages(9 / 13) == {} and check_averages(0.0, skipped=1.0) == {}
    assert check_averages(0.1, spec=replace(SPEC, warmup=False)) == {}
    assert check_averages(9 / 13 + 1e-13) and not check_averages(9 / 13 + 1e-13, precision=2.0**-23)


@pytest.mark.parametrize(
    "rate, skipped, cause",
    [
        (0.0, 0, "it stays as it was"),
        (1.0, 0, "it is a copy of what it averages"),
        (4 / 13, 0, "decay and 1 - decay are swapped"),
        (0.1, 0, "there is no warm-up"),
        (0.5, 0, "its rate is 0.5 instead of 0.69"),
        (9 / 13, 1, "it changes although the update was skipped"),
    ],
)
def test_a_slip_of_an_average_is_found_and_named(rate, skipped, cause):
    deviations = check_averages(rate, skipped)
    assert {name: deviation["cause"] for name, deviation in deviations.items()} == dict.fromkeys(AVERAGED, cause)


@pytest.mark.parametrize(
    "kind, cause",
    [
        (Settings, "momentum without Nesterov's step ahead (w)"),
        (sgd_nesterov.Settings, "the learning rate is 0.5 times the expected one (w)"),
    ],
)
def test_a_slip_of_another_linear_optimizer_is_named(kind, cause):
    """Nesterov's momentum: what plays its part is plain momentum, or itself with half the learning rate."""
    rng, spec = np.random.default_rng(0), sgd_nesterov.Settings(momentum=MOMENTUM)
    before = {"w": rng.standard_normal((3, 4)), "optimizer/momentum/w": rng.standard_normal((3, 4))}
    gradient, old = rng.standard_normal((3, 4)), before["optimizer/momentum/w"]
    step, (slot,) = kind(momentum=MOMENTUM).direction(Math(numpy_ops), before["w"], gradient, (old,), DECAY, 1)
    lr = LR if kind is Settings else LR / 2
    after = {"w": before["w"] - lr * step, "optimizer/momentum/w": slot}
    settings = Plan((), (), lambda name: ParamGroup(1.0, DECAY), optimizer=spec)
    found = formulas.check(settings, set(), LR, before, after, {"w": gradient}, 1.0, 2.0**-52)
    assert of_update(found, MOMENTUM) == cause
