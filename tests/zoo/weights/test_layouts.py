"""Layouts and arithmetic that differ between projects: transposed classifiers, epsilons, counters, missing biases."""

import numpy as np
import pytest

from tests.zoo.weights.state_dicts import as_mindspore, as_paddle, numbered, recorded_shapes, small_resnet
from zoo.data.errors import UserError
from zoo.weights import layouts, names


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
