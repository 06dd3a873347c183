"""Key mapping of ResNet and TSM: every recorded name maps to a canonical one, and unknown names are refused."""

import pytest
import torch

from tests.zoo.weights.state_dicts import numbered, recorded_shapes
from zoo.data.errors import UserError
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import torch as tsm
from zoo.models.tsm.spec import Arch
from zoo.models.tsm_mobilenet_v2 import spec as mobile
from zoo.weights import layouts, names, origins
from zoo.weights.conversion import default_model
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


@pytest.mark.parametrize(
    "name, origin, blocks, canonical",
    [
        ("blocks.0.conv0.conv.weight", "paddleclas", 16, "layer1.0.conv1.weight"),
        ("blocks.3.short.bn._mean", "paddleclas", 16, "layer2.0.downsample.1.running_mean"),
        ("blocks.13.conv2.bn._variance", "paddleclas", 16, "layer4.0.bn3.running_var"),
        ("blocks.29.conv1.conv.weight", "paddleclas", 33, "layer3.22.conv2.weight"),
        ("blocks.49.conv1.bn.bias", "paddleclas", 50, "layer4.2.bn2.bias"),
        ("blocks.2.conv1.bn.bias", "paddleclas", 8, "layer2.0.bn2.bias"),
        ("backbone.res2c.conv0._conv.weight", "paddlevideo", 0, "layer1.2.conv1.weight"),
        ("backbone.res4a.short._batch_norm._mean", "paddlevideo", 0, "layer3.0.downsample.1.running_mean"),
        ("backbone.res4b1.conv2._conv.weight", "paddlevideo", 0, "layer3.1.conv3.weight"),
        ("backbone.res4b22.conv1._batch_norm.bias", "paddlevideo", 0, "layer3.22.bn2.bias"),
        ("head.fc.weight", "paddlevideo", 0, "fc.weight"),
        ("layer3.1.bn2d.gamma", "mindspore", 0, "layer3.1.bn2.weight"),
        ("layer3.0.down_sample_layer.1.moving_variance", "mindspore", 0, "layer3.0.downsample.1.running_var"),
        ("end_point.bias", "mindspore", 0, "fc.bias"),
        ("layer3.0.down_sample.1.beta", "mindcv", 0, "layer3.0.downsample.1.bias"),
    ],
)
def test_names_of_resnets(name, origin, blocks, canonical):
    assert names.canonical_name(name, origin, blocks) == canonical


@pytest.mark.parametrize(
    "name, canonical",
    [
        ("module.base_model.layer2.net.0.block.conv1.net.weight", "layer2.0.conv1.weight"),
        ("module.base_model.layer2.0.nl.g.0.weight", "layer2.0.nl.g.weight"),
        ("module.base_model.layer2.0.nl.theta.bias", "layer2.0.nl.theta.bias"),
        ("base_model.layer3.4.nl.phi.0.bias", "layer3.4.nl.phi.bias"),
        ("base_model.layer3.4.nl.W.0.weight", "layer3.4.nl.out.weight"),
        ("base_model.layer3.4.nl.W.1.running_var", "layer3.4.nl.bn.running_var"),
        ("module.new_fc.bias", "fc.bias"),
        ("base_model.fc.weight", "fc.weight"),
    ],
)
def test_names_of_mit(name, canonical):
    assert names.canonical_name(name, "mit") == canonical


@pytest.mark.parametrize(
    "name, canonical",
    [
        ("backbone.conv1.conv.weight", "conv1.weight"),
        ("backbone.conv1.bn.running_mean", "bn1.running_mean"),
        ("backbone.layer1.0.conv1.conv.net.weight", "layer1.0.conv1.weight"),
        ("backbone.layer2.net.3.conv3.bn.bias", "layer2.3.bn3.bias"),
        ("backbone.layer2.0.block.downsample.conv.weight", "layer2.0.downsample.0.weight"),
        ("backbone.layer2.0.block.downsample.bn.weight", "layer2.0.downsample.1.weight"),
        ("backbone.layer2.0.non_local_block.phi.0.conv.bias", "layer2.0.nl.phi.bias"),
        ("backbone.layer2.0.non_local_block.conv_out.bn.weight", "layer2.0.nl.bn.weight"),
        ("cls_head.fc_cls.weight", "fc.weight"),
    ],
)
def test_names_of_mmaction2(name, canonical):
    assert names.canonical_name(name, "mmaction2") == canonical


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="no known origin"):
        names.detect(["res2a.conv0._conv.weight"])
