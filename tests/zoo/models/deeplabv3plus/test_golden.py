"""DeepLabV3+ against values recorded from mmsegmentation's, PaddleSeg's and torchvision's implementations.

tests/golden/README.txt describes how they were recorded.
"""

import functools

import pytest
import torch

from tests.zoo.models.deeplabv3plus.golden import (
    CASES,
    CLASSES,
    RECORDED_STATISTICS,
    TOLERANCE,
    differences,
    drawn,
    input_images,
    labels,
    losses,
    recorded,
    relative,
    thinned,
)
from zoo.models.deeplabv3plus.spec import Arch, shapes
from zoo.models.deeplabv3plus.torch import Model
from zoo.trainer.objectives import Segmentation
from zoo.trainer.torch import ops

COUNTS = [  # number of parameters with 19 classes, recorded from the models of tests/golden/README.txt
    (dict(depth=50), 43_589_878),
    (dict(depth=101), 62_582_006),
    (dict(depth=50, stem="plain"), 43_570_646),
    (CASES["r18"].options, 12_468_962),
    (CASES["r101_d16"].options, 62_582_006),
    (dict(depth=50, auxiliary=False), 41_225_187),
    (dict(variant="paddleseg", depth=50), 26_723_395),
]


def arch_of(case, **more):
    return Arch(num_classes=CLASSES, dropout=0.0, **{**CASES[case].options, **more})


@functools.lru_cache(maxsize=1)
def weights(tensors):
    return {name: torch.from_numpy(drawn(name, shape)) for name, shape in tensors}


def build(case, **more):
    arch = arch_of(case, **more)
    model, values = Model(arch), weights(tuple(shapes(arch).items()))
    with torch.no_grad():
        state = {
            name: tensor for name, tensor in model.state_dict().items() if not name.endswith("num_batches_tracked")
        }
        assert state.keys() == values.keys()
        for name, tensor in state.items():
            tensor.copy_(values[name])
    return model


def capture_heads(model):
    """Return a dict that holds the outputs of the two heads after each forward pass."""
    heads = {}
    for name in ("head", "aux"):
        if getattr(model, name) is not None:
            getattr(model, name).register_forward_hook(
                lambda module, inputs, output, name=name: heads.__setitem__(name, output.numpy())
            )
    return heads


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == "r18" else pytest.mark.slow) for case in CASES]
)
def test_equals_upstream(case):
    model, images = build(case), torch.from_numpy(input_images(case))
    heads, batch = capture_heads(model), {"label": torch.from_numpy(labels(case))}
    with torch.no_grad():
        outputs = {"resized": model.eval()(images).numpy(), "eval": heads["head"]}
        logits = model.train()(images)
    outputs["train"] = heads["head"]
    if len(logits) == 2:
        outputs["aux"] = heads["aux"]
    measured = differences(case, outputs, {name: tensor.numpy() for name, tensor in model.state_dict().items()})
    assert len(measured) == len(outputs) + (2 * len(RECORDED_STATISTICS) if case != "vd50" else 0)
    for name, settings, expected in losses(case):
        objective = Segmentation(ops, settings, None, torch.float32, torch.float64)
        measured[name] = abs(float(objective.total(logits, batch["label"]) / objective.count(batch)) / expected - 1)
    assert len(measured) >= 4 and max(measured.values()) <= TOLERANCE, measured


@pytest.mark.slow
def test_the_plain_backbone_is_torchvisions_dilated_resnet():
    backbone, features = build("r50b").eval().backbone, {}
    for name in ("layer1", "layer2", "layer3", "layer4"):
        getattr(backbone, name).register_forward_hook(
            lambda module, inputs, output, name=name: features.__setitem__(name, output.numpy())
        )
    with torch.no_grad():
        backbone(torch.from_numpy(input_images("r50b")))
    golden = recorded()
    measured = {
        name: relative(thinned("feature", array), golden[f"torchvision/{name}"]) for name, array in features.items()
    }
    assert len(measured) == 4 and max(measured.values()) <= TOLERANCE, measured


@pytest.mark.parametrize("options, count", COUNTS)
def test_parameter_counts(options, count):
    with torch.device("meta"):
        model = Model(Arch(num_classes=CLASSES, **options))
    assert sum(parameter.numel() for parameter in model.parameters()) == count
