"""ResNets in state dicts that hold more than a classifier: found and converted; anything else is left as it is."""

import json

import numpy as np
import pytest
import torch

from tests.helpers.conversions import assert_equal, converted, refused, source
from tests.zoo.weights.state_dicts import as_paddle, small_deeplab, small_resnet
from zoo.config import loader
from zoo.data.errors import UserError
from zoo.finetune import recipe
from zoo.weights import backbones, layouts, pth

SMALL = layouts.to_torchvision(small_resnet())
BACKBONE = {name: array for name, array in SMALL.items() if not name.startswith("fc.")}
CANONICAL = {name: array for name, array in small_resnet().items() if not name.startswith("fc.")}
MATRIX, VECTOR, KERNEL = (np.ones(shape, np.float32) for shape in ((4, 16), (4,), (2, 2, 3, 3)))
CHILDREN = {"conv1": "0", "bn1": "1", "layer1": "4", "layer2": "5", "layer3": "6", "layer4": "7"}
MLP = {"fc.0.weight": MATRIX, "fc.0.bias": VECTOR, "fc.2.weight": MATRIX, "fc.2.bias": VECTOR}


def below(prefix, tensors):
    return {prefix + name: tensor for name, tensor in tensors.items()}


def sequential(tensors):
    return {f"{CHILDREN[name.partition('.')[0]]}.{name.partition('.')[2]}": array for name, array in tensors.items()}


HEADLESS = {  # what is saved -> the parts that the console names
    "DINO, backbone": (BACKBONE, ()),
    "DINO": (below("module.", {**below("backbone.", BACKBONE), "head.mlp.0.weight": MATRIX}), ("head",)),
    "MoCo v1": (
        {**below("module.encoder_q.", SMALL), **below("module.encoder_k.", SMALL), "module.queue": MATRIX},
        ("encoder_k", "queue", "encoder_q.fc"),
    ),
    "MoCo v2": (
        {**below("encoder_q.", {**BACKBONE, **MLP}), **below("encoder_k.", {**BACKBONE, **MLP})},
        ("encoder_k", "encoder_q.fc"),
    ),
    "MoCo v3": (
        {**below("base_encoder.", BACKBONE), **below("momentum_encoder.", BACKBONE), "predictor.0.weight": MATRIX},
        ("momentum_encoder", "predictor"),
    ),
    "SimSiam": (
        {**below("encoder.", {**BACKBONE, **MLP, "fc.1.running_mean": VECTOR}), "predictor.3.bias": VECTOR},
        ("encoder.fc", "predictor"),
    ),
    "SimCLR": (below("backbone.", {**BACKBONE, **MLP}), ("fc",)),
    "SwAV": (
        below("module.", {**BACKBONE, "projection_head.0.weight": MATRIX, "prototypes.weight": MATRIX}),
        ("projection_head", "prototypes"),
    ),
    "Lightly": ({**below("backbone.", sequential(BACKBONE)), "head.layers.0.weight": MATRIX}, ("head",)),
    "children": (sequential(BACKBONE), ()),
    "a head of its own": ({**below("resnet.", BACKBONE), "last.bias": VECTOR}, ("last",)),
    "Paddle": (as_paddle(CANONICAL), ()),
}


@pytest.mark.parametrize("name", HEADLESS)
def test_a_backbone_is_converted_for_a_new_classifier(name, tmp_path, capsys):
    state, left_out = HEADLESS[name]
    tensors, metadata = converted(tmp_path, state)
    assert_equal(tensors, CANONICAL)
    assert json.loads(metadata["arch"]) == {"depth": 18, "width": 2, "non_local": False}
    output = capsys.readouterr().out
    assert "note: no classifier: zoo finetune initializes one; zoo train does with -o fresh_head=true" in output
    line = next((line for line in output.splitlines() if "only the ResNet in it is converted, without " in line), "")
    assert {*line.partition(" without ")[2].split(", ")} - {""} == {*left_out}


@pytest.mark.parametrize(
    "state",
    [
        {**BACKBONE, "fc.1.weight": SMALL["fc.weight"], "fc.1.bias": SMALL["fc.bias"]},
        below("model.", {**BACKBONE, "fc.0.weight": SMALL["fc.weight"], "fc.0.bias": SMALL["fc.bias"]}),
        {**below("model.", SMALL), "criterion.weight": VECTOR},
        {**as_paddle(CANONICAL), "fc.1.weight": SMALL["fc.weight"].T, "fc.1.bias": SMALL["fc.bias"]},
    ],
    ids=["Sequential(Dropout, Linear)", "Sequential(Linear)", "Lightning with a weighted loss", "Paddle"],
)
def test_a_classifier_of_one_layer_is_kept(state, tmp_path, capsys):
    tensors, _ = converted(tmp_path, state)
    assert_equal(tensors, small_resnet())
    assert "no classifier" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "state, message",
    [
        ({**below("a.", BACKBONE), **below("b.", BACKBONE)}, "in.safetensors holds several ResNets (a., b.)"),
        ({**BACKBONE, "attention.weight": KERNEL}, "unexpected keys (1):\n    attention.weight"),
        ({**SMALL, "attention.weight": MATRIX}, "unexpected keys (1):\n    attention.weight"),
        ({**BACKBONE, "fc.weight": VECTOR}, "there is no fc.weight with 2 dimensions"),
    ],
)
def test_what_computes_something_else_is_refused(state, message, tmp_path, capsys):
    assert message in refused(capsys, tmp_path, state)


@pytest.mark.parametrize(
    "tensors",
    [small_deeplab(), below("momentum/", CANONICAL), below("base_model.", CANONICAL), {"x.w": KERNEL}],
    ids=["DeepLabV3+", "optimizer", "TSN", "others"],
)
def test_other_models_are_left_as_they_are(tensors):
    assert backbones.extract(tensors, "in.pth") == (tensors, "")


def test_entries_of_a_training_file_are_named(tmp_path):
    networks = {name: {"w": torch.ones(2)} for name in ("student", "teacher")}
    with pytest.raises(UserError, match="the entry 'student' is a dict, not a tensor; save it alone, if it is"):
        pth.read(str(source(tmp_path, {**networks, "epoch": 3})))


def test_finetuning_starts_from_a_backbone(tmp_path):
    converted(tmp_path, BACKBONE)
    found = recipe._of_weights("classify", str(tmp_path / "out.safetensors"), {"fresh_head": loader.Entry(True, "")})
    assert (found["model.depth"].value, found["fresh_head"].value) == (18, True)
