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
    "origin, name, canonical",
    [
        ("paddleclas", "blocks.3.short.bn._mean", "layer2.0.downsample.1.running_mean"),
        ("paddleclas", "blocks.13.conv2.bn._variance", "layer4.0.bn3.running_var"),
        ("paddlevideo", "backbone.res4b22.conv1._batch_norm.bias", "layer3.22.bn2.bias"),  # of deep models
        ("mindspore", "layer3.1.bn2d.gamma", "layer3.1.bn2.weight"),
        ("mindcv", "layer3.0.down_sample.1.beta", "layer3.0.downsample.1.bias"),
        ("mit", "module.base_model.layer2.net.0.block.conv1.net.weight", "layer2.0.conv1.weight"),
        ("mit", "module.base_model.layer2.0.nl.g.0.weight", "layer2.0.nl.g.weight"),
        ("mit", "base_model.layer3.4.nl.phi.0.bias", "layer3.4.nl.phi.bias"),
        ("mit", "base_model.layer3.4.nl.W.0.weight", "layer3.4.nl.out.weight"),
        ("mit", "base_model.layer3.4.nl.W.1.running_var", "layer3.4.nl.bn.running_var"),
        ("mit", "module.new_fc.bias", "fc.bias"),
        ("mit", "base_model.fc.weight", "fc.weight"),
        ("mmaction2", "backbone.layer1.0.conv1.conv.net.weight", "layer1.0.conv1.weight"),
        ("mmaction2", "backbone.layer2.net.3.conv3.bn.bias", "layer2.3.bn3.bias"),
        ("mmaction2", "backbone.layer2.0.block.downsample.bn.weight", "layer2.0.downsample.1.weight"),
        ("mmaction2", "backbone.layer2.0.non_local_block.phi.0.conv.bias", "layer2.0.nl.phi.bias"),
        ("mmaction2", "backbone.layer2.0.non_local_block.conv_out.bn.weight", "layer2.0.nl.bn.weight"),
        ("mmaction2", "cls_head.fc_cls.weight", "fc.weight"),
    ],
)
def test_single_names(origin, name, canonical):
    """Where the shapes of the recorded names and recorded logits do not tell."""
    assert names.canonical_name(name, origin, 16) == canonical


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="no known origin"):
        names.detect(["res2a.conv0._conv.weight"])
