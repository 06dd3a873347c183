"""zoo/compare/optimizer.py against SGD written out here, right and with one slip at a time."""

import numpy as np
import pytest

from zoo.compare import optimizer
from zoo.compare.causes import of_update
from zoo.compare.proof import ROUNDING_UNITS
from zoo.optim.sgd import Settings
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


def plan(**settings):
    return Plan((), (), GROUPS.__getitem__, optimizer=Settings(momentum=MOMENTUM), **settings)


def sgd(weight, buffer, gradient, group, clip, momentum=MOMENTUM):
    """Return weight and buffer after an update by the formula."""
    buffer = momentum * buffer + (clip * gradient + group.weight_decay * weight)
    return weight - LR * group.lr_scale * buffer, buffer


def norm(gradients, names):
    return np.sqrt(sum((gradients[name].astype(np.float64) ** 2).sum() for name in names))


def run(rule, clip_norm=0.5, clip_sharded=True, precision="fp64", steps=2, names=TRAINED, norm_rounding=0.0):
    """Return what the check says of each update of a rule like `sgd`, which is given the rightful clip factor too."""
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
        unit = ROUNDING_UNITS[precision]
        total = norm(gradients, names)
        arguments = settings, {"shard"}, LR, before, weights, gradients, total, unit, norm_rounding
        results.append(optimizer.check(*arguments))
    return results


def right(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group, clip)


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("clip_norm", [None, 0.5, 1e3])
@pytest.mark.parametrize("clip_sharded", [True, False])
def test_the_formula_is_accepted(precision, clip_norm, clip_sharded):
    assert run(right, clip_norm, clip_sharded, precision, steps=4) == [{}] * 4


@pytest.mark.parametrize("clip_sharded", [True, False])
@pytest.mark.parametrize("precision, rounding", [("fp64", 1e-12), ("fp32", 9e-4)])
def test_the_rounding_of_the_norm_is_no_deviation(precision, rounding, clip_sharded):
    """A norm of millions of numbers is rounded by more than its last bit; a larger difference is a deviation."""

    def rounded(name, weight, buffer, gradient, group, clip):
        is_clipped = clip_sharded or name != "shard"
        return sgd(weight, buffer, gradient, group, clip * (1 + rounding) if is_clipped else clip)

    (found,) = run(rounded, clip_sharded=clip_sharded, precision=precision, steps=1)
    assert "fc.bias" in found and ("shard" not in found or clip_sharded)
    for measured, is_silent in ((rounding, True), (rounding / 8, False)):
        (found,) = run(rounded, clip_sharded=clip_sharded, precision=precision, steps=1, norm_rounding=measured)
        assert (found == {}) == is_silent
    (found,) = run(rounded, clip_norm=None, precision=precision, steps=1, norm_rounding=rounding)
    assert found  # nothing is clipped


def test_the_rounding_of_a_norm():
    assert optimizer.norm_rounding(2.0, 2.0 + 2e-12, "fp64") == pytest.approx(1e-12, rel=1e-3)
    assert optimizer.norm_rounding(2.0, 2.0 + 2e-8, "fp64") == 0  # a wrong norm
    assert optimizer.norm_rounding(2.0, 2.0 + 2e-4, "fp32") == pytest.approx(1e-4)
    assert optimizer.norm_rounding(0.0, 0.0, "fp32") == 0


def ignores_lr_scale(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group._replace(lr_scale=1.0), clip)


def halves_decay(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group._replace(weight_decay=group.weight_decay / 2), clip)


def drops_decay(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group._replace(weight_decay=0.0), clip)


def decays_all(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group._replace(weight_decay=DECAY), clip)


def has_momentum_of_0_8(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group, clip, momentum=0.8)


def has_no_momentum(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group, clip, momentum=0.0)


def is_nesterov(name, weight, buffer, gradient, group, clip):
    total = clip * gradient + group.weight_decay * weight
    buffer = MOMENTUM * buffer + total
    return weight - LR * group.lr_scale * (total + MOMENTUM * buffer), buffer


def has_dampening(name, weight, buffer, gradient, group, clip):
    buffer = MOMENTUM * buffer + 0.1 * (clip * gradient + group.weight_decay * weight)
    return weight - LR * group.lr_scale * buffer, buffer


def squares_clip(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group, clip**2)


def does_not_clip(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group, 1.0)


def clips_decay_too(name, weight, buffer, gradient, group, clip):
    return sgd(weight, buffer, gradient, group._replace(weight_decay=clip * group.weight_decay), clip)


DECAYED = {"conv.weight", "fc.weight", "shard"}
SLIPS = [  # rule, update in which it is certain, kind and value of the factor, the parameters
    (ignores_lr_scale, 0, "lr", {"fc.weight": 1 / 5, "fc.bias": 1 / 10}),
    (halves_decay, 0, "decay", dict.fromkeys(DECAYED, DECAY / 2)),
    (drops_decay, 0, "decay", dict.fromkeys(DECAYED, 0.0)),
    (decays_all, 0, "decay", {"fc.bias": DECAY}),
    (has_momentum_of_0_8, 1, "momentum", dict.fromkeys(TRAINED, 8 / 9)),
    (has_no_momentum, 1, "momentum", dict.fromkeys(TRAINED, 0.0)),
    (is_nesterov, 1, "nesterov", dict.fromkeys(TRAINED, 1.0)),
    (has_dampening, 1, "dampening", dict.fromkeys(TRAINED, 0.1)),
]


@pytest.mark.parametrize("rule, step, kind, expected", SLIPS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("precision, rel", [("fp64", 1e-9), ("fp32", 1e-3)])
def test_slips_are_found_with_their_factor(rule, step, kind, expected, precision, rel):
    found = run(rule, precision=precision)[step]
    assert found.keys() == expected.keys()
    for name, factor in expected.items():
        assert found[name]["factors"][kind] == pytest.approx(factor, rel=rel, abs=rel * DECAY)
        assert found[name]["decay"] == GROUPS[name].weight_decay
        if step == 1 and name in DECAYED:  # once momentum counts, nothing else explains it
            assert found[name]["factors"].keys() == {kind}


def test_momentum_does_not_count_in_the_first_update():
    assert run(has_momentum_of_0_8)[0] == {}


@pytest.mark.parametrize("rule, power", [(squares_clip, 1), (does_not_clip, -1)])
def test_slips_of_clipping_are_a_factor_of_the_gradient(rule, power):
    clips = []

    def observed(name, weight, buffer, gradient, group, clip):
        clips.append(clip)
        return rule(name, weight, buffer, gradient, group, clip)

    for found in run(observed):
        clip = clips[0]
        del clips[: len(TRAINED)]
        assert found.keys() == set(TRAINED) and clip < 0.1
        for deviation in found.values():
            assert deviation["factors"]["gradient"] == pytest.approx(clip**power, rel=1e-9)


def test_clipping_after_the_decay_is_a_factor_of_the_decay():
    clips = []

    def observed(name, weight, buffer, gradient, group, clip):
        clips.append(clip)
        return clips_decay_too(name, weight, buffer, gradient, group, clip)

    found = run(observed, steps=1)[0]
    assert found.keys() == DECAYED
    for deviation in found.values():
        assert deviation["factors"]["decay"] == pytest.approx(clips[0] * DECAY, rel=1e-9)


def test_clipping_by_the_norm_with_decay_is_found():
    """No single factor explains it, but it is a deviation of all."""

    def rule(name, weight, buffer, gradient, group, clip):
        return sgd(weight, buffer, gradient, group._replace(weight_decay=0.97 * clip * group.weight_decay), 0.97 * clip)

    found = run(rule)[1]
    assert found.keys() == set(TRAINED)
    assert all(found[name]["factors"] == {} for name in DECAYED)


def test_shards_that_are_clipped_although_they_are_exempt():
    def rule(name, weight, buffer, gradient, group, clip):
        return sgd(weight, buffer, gradient, group, 0.25 if name == "shard" else clip)

    for found in run(rule, clip_sharded=False):
        assert found.keys() == {"shard"}
        assert found["shard"]["factors"]["gradient"] == pytest.approx(0.25)


def test_shards_that_are_not_clipped_although_they_should():
    def rule(name, weight, buffer, gradient, group, clip):
        return sgd(weight, buffer, gradient, group, 1.0 if name == "shard" else clip)

    assert [set(found) for found in run(rule)] == [{"shard"}, {"shard"}]


def test_a_frozen_parameter_that_is_updated():
    def rule(name, weight, buffer, gradient, group, clip):
        return sgd(weight, buffer, gradient, group._replace(lr_scale=1.0) if name == "frozen" else group, clip)

    for found in run(rule, names=list(GROUPS)):
        assert found.keys() == {"frozen"}
        assert found["frozen"]["factors"]["lr"] == pytest.approx(1.0)
    assert run(right, names=list(GROUPS)) == [{}, {}]


def test_a_random_update_has_no_factors():
    rng = np.random.default_rng(5)

    def rule(name, weight, buffer, gradient, group, clip):
        return weight + 0.1 * rng.standard_normal(weight.shape), buffer

    for found in run(rule):
        assert found.keys() == set(TRAINED)
        assert all(value["factors"] == {} and value["deviation"] > 0.5 for value in found.values())


@pytest.mark.parametrize("precision, smallest", [("fp64", 1e-11), ("fp32", 1e-3)])
def test_one_wrong_number_is_found(precision, smallest):
    """Above the rounding of weights that are large beside their update."""

    def rule(name, weight, buffer, gradient, group, clip):
        weight, buffer = sgd(weight, buffer, gradient, group, clip)
        weight.flat[0] += smallest
        return weight, buffer

    assert all(found.keys() == set(TRAINED) for found in run(rule, precision=precision))


def test_an_update_that_is_not_finite_is_found():
    def rule(name, weight, buffer, gradient, group, clip):
        return np.full_like(weight, np.nan) if name == "fc.bias" else sgd(weight, buffer, gradient, group, clip)[
            0
        ], buffer

    assert run(rule, steps=1)[0]["fc.bias"]["factors"] == {}


def test_the_active_rows_of_partial_fc_are_left_out():
    before, after = {"shard": np.ones((6, 4))}, {"shard": np.zeros((6, 4))}
    assert optimizer.check(plan(), {"shard"}, LR, before, after, {"shard": np.ones((2, 4))}, 3.0, 2.0**-52) == {}


def test_norm_and_clip_factor():
    gradients = {"fc.bias": np.array([3.0, 0.0]), "shard": np.array([[4.0]])}
    assert optimizer.norm(gradients) == 5.0
    factors = {
        None: (1.0, 1.0),
        2.5: (0.5, 2.5 / 3),
        4.0: (0.8, 1.0),
        10.0: (1.0, 1.0),
    }
    for limit, (together, without_shards) in factors.items():
        assert optimizer.clip_factor(plan(clip_norm=limit), {"shard"}, gradients, 5.0) == together
        without = plan(clip_norm=limit, clip_sharded=False)
        assert optimizer.clip_factor(without, {"shard"}, gradients, 5.0) == without_shards
    assert optimizer.clip_factor(plan(clip_norm=1.0), set(), {"fc.bias": np.zeros(2)}, 0.0) == 1.0
    of_all_ranks = optimizer.clip_factor(plan(clip_norm=2.5), {"shard"}, gradients, 10.0)
    assert of_all_ranks == 0.25  # the shards of other ranks count too


@pytest.mark.parametrize(
    "rule, sentence",
    [
        (drops_decay, "the weight decay is 0 instead of 0.01 (conv.weight, fc.weight, shard)"),
        (halves_decay, "the weight decay is 0.005 instead of 0.01 (conv.weight, fc.weight, shard)"),
        (decays_all, "the weight decay is 0.01 instead of 0 (fc.bias)"),
        (has_momentum_of_0_8, "the momentum is 0.8 instead of 0.9 (conv.weight, fc.weight, fc.bias and 1 more)"),
        (is_nesterov, "Nesterov momentum (conv.weight, fc.weight, fc.bias and 1 more)"),
        (has_dampening, "are added to the momentum 0.1 times: dampening (conv.weight, fc.weight, fc.bias and 1 more)"),
        (
            ignores_lr_scale,
            "the learning rate is 0.2 times the expected one (fc.weight); "
            "the learning rate is 0.1 times the expected one (fc.bias)",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_cause_is_a_sentence(rule, sentence):
    assert of_update(run(rule)[1], MOMENTUM).endswith(sentence)


def test_two_causes_at_once_are_both_named():
    def rule(name, weight, buffer, gradient, group, clip):
        slip = drops_decay if name == "conv.weight" else ignores_lr_scale
        return slip(name, weight, buffer, gradient, group, clip)

    clauses = of_update(run(rule)[1], MOMENTUM).split("; ")
    assert sorted(clauses) == [
        "the learning rate is 0.1 times the expected one (fc.bias)",
        "the learning rate is 0.2 times the expected one (fc.weight)",
        "the weight decay is 0 instead of 0.01 (conv.weight)",
    ]
