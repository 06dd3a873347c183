"""Layouts and arithmetic that differ between projects; comparison with a model."""

import numpy as np
import pytest
import torch

from tests.zoo.weights.state_dicts import as_mindspore, as_paddle, numbered, recorded_shapes, small_resnet
from zoo.data.errors import UserError
from zoo.models.tsm.spec import Arch, shapes
from zoo.models.tsm.torch import Model
from zoo.run import weights as checks
from zoo.weights import layouts, names
from zoo.weights.match import match_state_dict


def test_a_square_classifier_is_transposed():
    """With 16 features and 16 classes, the shape does not tell the layout."""
    tensors = small_resnet(classes=16)
    canonical = layouts.to_canonical(as_paddle(tensors), "paddle_vision")
    assert canonical.keys() == tensors.keys()
    assert all(np.array_equal(canonical[name], tensors[name]) for name in tensors)


def test_to_torchvision_has_exactly_its_names():
    shapes = recorded_shapes("names_torchvision")
    result = layouts.to_torchvision(layouts.to_canonical(numbered(shapes), "torchvision"))
    assert {name: array.shape for name, array in result.items()} == shapes
    counter = result["layer1.0.downsample.1.num_batches_tracked"]
    assert counter.dtype == np.int64 and counter == 0


@pytest.mark.parametrize("convert", [layouts.to_torchvision, layouts.to_paddle])
def test_non_local_blocks_are_refused(convert):
    with pytest.raises(UserError, match="non-local"):
        convert({"layer2.0.nl.g.weight": np.zeros(1, np.float32)})


def test_two_keys_with_one_canonical_name_are_refused():
    with pytest.raises(UserError, match="base_model.fc.weight and new_fc.weight would both become fc.weight"):
        layouts.to_canonical(numbered({"base_model.fc.weight": (1,), "new_fc.weight": (1,)}), "mit")


def test_training_state_is_left_out():
    tensors = as_mindspore(small_resnet())
    state = {
        **{f"moments.{name}": array for name, array in tensors.items() if "moving" not in name},
        **{name: np.zeros((), np.float32) for name in ("learning_rate", "momentum", "global_step", "epoch_num")},
    }
    assert names.detect({**state, **tensors}) == "mindspore"
    assert layouts.to_canonical({**state, **tensors}, "mindspore").keys() == small_resnet().keys()


@pytest.mark.parametrize("is_basic", [True, False])
def test_the_second_epsilon_of_basic_blocks_moves_into_the_variance(is_basic):
    """With the larger epsilon, (x - mean) / sqrt(var + 1e-4) equals (x - mean) / sqrt(var' + 1e-5)."""
    variance = np.float32([1e-6, 0.5, 3])
    inner = "layer1.0.bn1d" if is_basic else "layer1.0.bn1"
    tensors = {"bn1.moving_variance": variance, f"{inner}.moving_variance": variance, "bn1.moving_mean": variance}
    canonical = layouts.to_canonical(tensors, "mindspore")
    epsilon = 1e-5 if is_basic else 1e-4  # of the model: those of bottlenecks have one epsilon, which is an option
    assert np.allclose(canonical["layer1.0.bn1.running_var"] + epsilon, variance + 1e-4, rtol=1e-6)
    assert np.array_equal(canonical["bn1.running_var"], variance)
    moved = layouts.move_eps(canonical, 1e-4 - 1e-5)
    assert np.allclose(moved["bn1.running_var"] + 1e-5, variance + 1e-4, rtol=1e-6)
    assert np.array_equal(moved["bn1.running_mean"], variance)


def test_a_variance_that_would_become_negative_is_refused():
    with pytest.raises(UserError, match="bn1.running_var is smaller than the difference"):
        layouts.move_eps({"bn1.running_var": np.float32([1, 1e-6])}, -1e-5)


def test_the_report_limits_its_lists():
    expected = {"a": (3,), **{f"b{i}": (1,) for i in range(12)}}
    report = match_state_dict({"a": np.zeros(2), "x": np.zeros(1)}, expected)
    assert not report.complete and report.matched == () and report.unexpected_keys == ("x",)
    assert report.shape_mismatches == (("a", (2,), (3,)),)
    text = str(report)
    assert "missing keys (12):" in text and "b9" in text and "b10" not in text and "... and 2 more" in text
    assert "a: (2,), the model expects (3,)" in text


def test_a_complete_state_dict():
    report = match_state_dict({"a": np.zeros((2, 3)), "b": np.zeros(())}, {"b": (), "a": [2, 3]})
    assert report.complete and report.matched == ("b", "a") and str(report) == "  2 tensors match"


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


def shift_weights(case):
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


@pytest.mark.parametrize("case", MODELS)
def test_a_reversed_shift_computes_the_same_and_twice_is_the_identity(case):
    past, div = shift_weights(case), Arch(**options(case)).shift_div
    future = layouts.reverse_shift(past, div)
    expected = logits(case, past, "past")
    largest = np.abs(expected).max()
    assert np.abs(logits(case, future, "future") - expected).max() <= 1e-5 * largest
    assert np.abs(logits(case, past, "future") - expected).max() > 1e-3 * largest  # so there is something to convert
    twice = layouts.reverse_shift(future, div)
    assert twice.keys() == past.keys() and all(np.array_equal(twice[name], past[name]) for name in past)


def test_tensors_off_the_residual_stream_and_folds_of_no_channel_stay():
    before = shift_weights("r50")
    after = layouts.reverse_shift(before, 8)
    assert all(
        after[name] is before[name] for name in before if ".conv2." in name or ".bn1." in name or ".bn2." in name
    )
    assert after["fc.bias"] is before["fc.bias"]
    assert all(np.array_equal(array, before[name]) for name, array in layouts.reverse_shift(before, 1000).items())


def test_weights_for_the_other_direction_are_refused_by_a_run():
    recorded = {"depth": 50, "num_classes": 400, "shift_direction": "past"}
    with pytest.raises(UserError, match="is for model.shift_direction=past, the recipe has future"):
        checks._check_arch(recorded, Arch(num_classes=7), "w.safetensors")
    checks._check_arch(recorded, Arch(num_classes=7, shift_direction="past"), "w.safetensors")
