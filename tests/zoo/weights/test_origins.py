"""Weights of other projects give the logits of their own models, as recorded; in all frameworks: origin_cases.py."""

import functools

import numpy as np
import pytest
import torch

from tests.helpers import frameworks
from tests.helpers.paths import GOLDEN
from tests.zoo.weights import state_dicts
from zoo.models.resnet import spec as resnet
from zoo.models.resnet import torch as resnet_torch
from zoo.models.tsm import spec as tsm
from zoo.models.tsm import torch as tsm_torch
from zoo.weights import conversion, layouts, names, origins
from zoo.weights.match import match_state_dict

CLASSES, SIDE, TOLERANCE = 7, 64, 1e-5


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.weights.origin_cases"))
def test_origins(framework, module, case):
    frameworks.check(framework, module, case)


@functools.lru_cache(maxsize=1)
def state_dict_of(file):
    return state_dicts.drawn_state_dict(f"names_{file}")


def images(*shape):
    return torch.from_numpy(np.random.default_rng(2015).standard_normal((*shape, 3, SIDE, SIDE), dtype=np.float32))


def logits(model, tensors, inputs):
    """Return the outputs of a model with canonical tensors, which must match it exactly."""
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith(names.COUNTER)}
    report = match_state_dict(tensors, {name: tuple(tensor.shape) for name, tensor in state.items()})
    assert report.complete, str(report)
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(torch.from_numpy(np.array(tensors[name])))
        return model.eval()(inputs).numpy()


def image_logits(depth, tensors, **options):
    return logits(resnet_torch.Model(resnet.Arch(depth, CLASSES, **options)), tensors, images(2))


def relative_difference(actual, expected):
    return np.abs(actual - expected).max() / np.abs(expected).max()


@pytest.fixture(scope="module")
def recorded():
    with np.load(GOLDEN / "resnets.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize(
    "file, origin, depth",
    [
        ("torchvision_resnet18", "torchvision", 18),
        ("paddle_vision_resnet50", "paddle_vision", 50),
        ("paddleclas_resnet50", "paddleclas", 50),
        ("mindspore_resnet18", "mindspore", 18),
    ],
)
def test_same_logits(file, origin, depth, recorded):
    actual = image_logits(depth, layouts.to_canonical(state_dict_of(file), origin))
    assert relative_difference(actual, recorded[file]) <= TOLERANCE


@pytest.mark.parametrize(
    "file, origin, depth, effect",
    [
        ("mindcv_resnet18", "mindcv", 18, 0.18),
        ("mindcv_resnet50", "mindcv", 50, 0.15),
        ("mindspore_resnet50", "mindspore", 50, 0.26),
    ],
)
def test_the_options_that_a_conversion_stores_give_the_same_logits(file, origin, depth, effect, recorded):
    """Without them the logits differ by the effect that the conversion prints. Odd sizes: models/resnet."""
    tensors = layouts.to_canonical(state_dict_of(file), origin)
    options = origins.architecture("resnet", origin, state_dict_of(file), depth, {})
    assert relative_difference(image_logits(depth, tensors, **options), recorded[file]) <= TOLERANCE
    symmetric = image_logits(depth, tensors, **{**options, "padding": "symmetric"})
    assert relative_difference(symmetric, recorded[file]) == pytest.approx(effect, abs=0.005)


def test_an_epsilon_in_the_variances_gives_the_same_logits(recorded):
    tensors = layouts.to_canonical(state_dict_of("mindspore_resnet50"), "mindspore")
    moved = layouts.move_eps(tensors, origins.epsilon("mindspore", 50, {}) - layouts.EPS)
    expected = recorded["mindspore_resnet50"]
    assert relative_difference(image_logits(50, moved, padding="same"), expected) <= TOLERANCE
    assert relative_difference(image_logits(50, tensors, padding="same"), expected) > 5e-4


@pytest.mark.parametrize("frames, keep_direction", [(8, False), (4, True)])
def test_a_tsm_of_paddlevideo(frames, keep_direction, recorded):
    tensors = layouts.to_canonical(state_dict_of("paddlevideo_resnet50"), "paddlevideo")
    tensors, notes = conversion.reverse_shift(tensors, 50, None if frames == 8 else frames, keep_direction)
    direction = "past" if keep_direction else "future"
    arch = tsm.Arch(50, CLASSES, segments=frames, shift_div=frames, shift_direction=direction)
    actual = logits(tsm_torch.Model(arch), tensors, images(2, frames))
    assert relative_difference(actual, recorded[f"paddlevideo_{frames}_frames"]) <= TOLERANCE
    assert ("model.shift_direction=past" in notes[0]) == keep_direction
    assert [note for note in notes[1:] if note.startswith("model.shift_div=4 is stored")] == notes[1:]
    assert len(notes) == (2 if frames == 4 else 1)
