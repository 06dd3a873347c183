"""Converted weights compute the same with the other shift direction, in complete models."""

import numpy as np
import pytest
import torch

from zoo.data.errors import UserError
from zoo.models.tsm.spec import Arch, shapes
from zoo.models.tsm.torch import Model
from zoo.run import weights as checks
from zoo.weights import layouts, names

SEGMENTS, SIDE = 4, 32
MODELS = {
    "r18": dict(depth=18, width=8),
    "r18_block": dict(depth=18, width=8, shift_place="block"),
    "r18_uneven": dict(depth=18, width=8, shift_div=3),
    "r50": dict(depth=50, width=8),
    "r50_block": dict(depth=50, width=8, shift_place="block", shift_div=4),
    "r50_nonlocal": dict(depth=50, width=8, non_local=True),
    "r50_tpool": dict(depth=50, width=8, temporal_pool=True),
}


def options(case):
    return {"num_classes": 5, "segments": SEGMENTS, "dropout": 0.0, **MODELS[case]}


def weights(case):
    """Draw weights: no scale is 1, no statistic is trivial, and residual branches end in small scales."""
    rng = np.random.default_rng(7)
    tensors = {}
    for name, shape in shapes(Arch(**options(case))).items():
        if len(shape) > 1:
            tensors[name] = (rng.standard_normal(shape) * np.prod(shape[1:]) ** -0.5).astype(np.float32)
        elif name.endswith(("weight", "running_var")):
            top = 0.5 if name.endswith(("bn3.weight", "nl.bn.weight")) else 1.5
            tensors[name] = rng.uniform(top / 3, top, shape).astype(np.float32)
        else:
            tensors[name] = (0.3 * rng.standard_normal(shape)).astype(np.float32)
    return tensors


def logits(case, tensors, direction):
    model = Model(Arch(**options(case), shift_direction=direction)).eval()
    state = {name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert all(name.endswith(names.COUNTER) for name in missing)
    video = torch.from_numpy(np.random.default_rng(3).standard_normal((2, SEGMENTS, 3, SIDE, SIDE), dtype=np.float32))
    with torch.no_grad():
        return model(video).numpy()


def relative_difference(actual, expected):
    return np.abs(actual - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("case", MODELS)
def test_the_converted_model_computes_the_same(case):
    past = weights(case)
    future = layouts.reverse_shift(past, Arch(**options(case)).shift_div)
    expected = logits(case, past, "past")
    assert relative_difference(logits(case, future, "future"), expected) <= 1e-5
    assert relative_difference(logits(case, past, "future"), expected) > 1e-3  # otherwise there is nothing to convert


@pytest.mark.parametrize("case", MODELS)
def test_twice_is_the_identity(case):
    before, div = weights(case), Arch(**options(case)).shift_div
    once = layouts.reverse_shift(before, div)
    twice = layouts.reverse_shift(once, div)
    assert twice.keys() == before.keys()
    assert all(np.array_equal(twice[name], before[name]) for name in before)
    assert not np.array_equal(once["conv1.weight"], before["conv1.weight"])


def test_tensors_off_the_residual_stream_are_returned_as_they_are():
    before = weights("r50")
    after = layouts.reverse_shift(before, 8)
    assert all(
        after[name] is before[name] for name in before if ".conv2." in name or ".bn1." in name or ".bn2." in name
    )
    assert after["fc.bias"] is before["fc.bias"]
    assert np.array_equal(after["layer1.1.conv1.weight"][:, :4], before["layer1.1.conv1.weight"][:, 4:8])


def test_folds_of_no_channel_change_nothing():
    before = weights("r18")
    assert all(np.array_equal(array, before[name]) for name, array in layouts.reverse_shift(before, 1000).items())


def test_weights_for_the_other_direction_are_refused_by_a_run():
    recorded = {"depth": 50, "num_classes": 400, "shift_direction": "past"}
    with pytest.raises(UserError, match="is for model.shift_direction=past, the recipe has future"):
        checks._check_arch(recorded, Arch(num_classes=7), "w.safetensors")
    checks._check_arch(recorded, Arch(num_classes=7, shift_direction="past"), "w.safetensors")
