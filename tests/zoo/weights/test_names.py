"""Names and layouts of other projects: every recorded name maps to a canonical one; what differs beyond names."""

import re

import numpy as np
import pytest
import torch

from tests.zoo.weights.state_dicts import as_mindspore, as_paddle, numbered, recorded_shapes, small_resnet
from zoo.data.errors import UserError
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import torch as tsm
from zoo.models.tsm.spec import Arch, shapes
from zoo.models.tsm.torch import Model
from zoo.models.tsm_mobilenet_v2 import spec as mobile
from zoo.weights import layouts, names, origins
from zoo.weights.architectures import default_model
from zoo.weights.match import match_state_dict

CLASSES = 7
RESNETS = {  # recorded names -> origin, depth
    "torchvision": ("torchvision", 50),
    "torchvision_resnet18": ("torchvision", 18),
    "paddle_vision_resnet50": ("paddle_vision", 50),
    "paddle_vision_resnet18": ("paddle_vision", 18),
    "paddleclas_resnet50": ("paddleclas", 50),
    "paddlevideo_resnet50": ("paddlevideo", 50),
    "mindspore_resnet50": ("mindspore", 50),
    "mindspore_resnet18": ("mindspore", 18),
    "mindcv_resnet50": ("mindcv", 50),
    "mindcv_resnet18": ("mindcv", 18),
}
TSMS = {
    "mit_blockres": "mit",
    "mit_block": "mit",
    "mit_nonlocal_tpool": "mit",
    "torchvision": "torchvision",
    "mmaction2_tpool": "mmaction2",
    "mmaction2_block": "mmaction2",
    "mmaction2_nonlocal": "mmaction2",
}


@pytest.mark.parametrize("origin", ["torchvision", "mit"])
def test_all_names_of_mobilenets(origin):
    tensors = numbered(recorded_shapes(f"names_{origin}_mobilenet_v2"))
    assert names.detect(tensors) == origin and default_model(origin, tensors) == "tsm_mobilenet_v2"
    canonical = layouts.to_canonical(tensors, origin)
    report = match_state_dict(canonical, mobile.shapes(mobile.Arch(num_classes=CLASSES)))
    assert report.complete, str(report)
    assert list(canonical) == list(mobile.shapes(mobile.Arch(num_classes=CLASSES)))  # in the order of the layers
    assert names.detect(canonical) == "canonical" and default_model("canonical", canonical) == "tsm_mobilenet_v2"


def test_names_of_the_online_demo():
    """mit-han-lab's online_demo names the layers as its TSN does, without wrappers."""
    recorded = recorded_shapes("names_mit_mobilenet_v2")
    plain = {key.removeprefix("module.base_model.").replace(".net.", "."): shape for key, shape in recorded.items()}
    tensors = numbered(plain)
    assert names.detect(tensors) == "mit" and default_model("mit", tensors) == "tsm_mobilenet_v2"
    report = match_state_dict(layouts.to_canonical(tensors, "mit"), mobile.shapes(mobile.Arch(num_classes=CLASSES)))
    assert report.complete, str(report)
    assert origins.architecture("tsm_mobilenet_v2", "mit", tensors, 0, {}) == {"shift_direction": "causal"}
    assert origins.architecture("tsm_mobilenet_v2", "mit", recorded, 0, {}) == {}


def tsm_shapes(**options):
    with torch.device("meta"):
        state = tsm.Model(Arch(num_classes=CLASSES, **options)).state_dict()
    return {name: tuple(tensor.shape) for name, tensor in state.items() if not name.endswith(names.COUNTER)}


@pytest.mark.parametrize("file, origin, depth", [(file, *row) for file, row in RESNETS.items()])
def test_all_names_of_resnets(file, origin, depth):
    tensors = numbered(recorded_shapes(f"names_{file}"))
    assert names.detect(tensors) == origin
    shapes = resnet.shapes(resnet.Arch(depth, CLASSES))
    report = match_state_dict(layouts.to_canonical(tensors, origin), shapes)
    assert report.complete, str(report)


@pytest.mark.parametrize("file, origin", TSMS.items())
def test_all_names_of_tsms(file, origin):
    tensors = numbered(recorded_shapes(f"names_{file}"))
    assert names.detect(tensors) == origin
    canonical = layouts.to_canonical(tensors, origin)
    report = match_state_dict(canonical, tsm_shapes(non_local="nonlocal" in file))
    assert report.complete, str(report)
    parameters = [name for name in tensors if not name.endswith(names.COUNTER)]
    assert all(canonical[names.canonical_name(name, origin)] is tensors[name] for name in parameters)
    assert len(canonical) - len(parameters) == (5 if file == "mmaction2_nonlocal" else 0)  # zero biases
    if origin == "mmaction2":
        assert not any(array.any() for name, array in canonical.items() if name.endswith("nl.out.bias"))


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="no known origin"):
        names.detect(["res2a.conv0._conv.weight"])


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


def test_a_resnet_of_nvidia_is_torchvisions_with_other_layers():
    shapes = recorded_shapes("names_torchvision")
    nvidia = {re.sub(r"^layer(\d)", lambda match: f"layers.{int(match[1]) - 1}", name): name for name in shapes}
    assert "layers.3.2.conv3.weight" in nvidia and names.detect(nvidia) == "torchvision"
    assert {names.canonical_name(name, "torchvision"): name for name in nvidia} == {n: o for o, n in nvidia.items()}
