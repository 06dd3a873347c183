"""Our DeepLabV3+ against numbers recorded from mmsegmentation's, PaddleSeg's and torchvision's own networks
(tests/golden/README.txt says how)."""

import functools

import numpy as np
import pytest
import torch

from tests.zoo.models.deeplabv3plus.golden import (
    CASES,
    CLASSES,
    TOLERANCE,
    WATCHED,
    differences,
    drawn,
    labels,
    losses,
    pictures,
    recorded,
    relative,
    thinned,
)
from zoo.models.deeplabv3plus.spec import Arch, shapes
from zoo.models.deeplabv3plus.torch import Model
from zoo.trainer.torch import objectives

COUNTS = [  # of parameters, with 19 classes: recorded from the nets of tests/golden/README.txt
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


def filled(case, **more):
    arch = arch_of(case, **more)
    net, values = Model(arch), weights(tuple(shapes(arch).items()))
    with torch.no_grad():
        state = {name: tensor for name, tensor in net.state_dict().items() if not name.endswith("num_batches_tracked")}
        assert state.keys() == values.keys()
        for name, tensor in state.items():
            tensor.copy_(values[name])
    return net


def before_resizing(net):
    """A dict that holds, after each forward, what the two heads gave."""
    heads = {}
    for name in ("head", "aux"):
        if getattr(net, name) is not None:
            getattr(net, name).register_forward_hook(
                lambda module, inputs, output, name=name: heads.__setitem__(name, output.numpy())
            )
    return heads


@pytest.mark.parametrize("case", CASES)
def test_equals_upstream(case):
    net, images = filled(case), torch.from_numpy(pictures(case))
    heads, batch = before_resizing(net), {"label": torch.from_numpy(labels(case))}
    with torch.no_grad():
        found = {"resized": net.eval()(images).numpy(), "eval": heads["head"]}
        outputs = net.train()(images)
    found["train"] = heads["head"]
    if len(outputs) == 2:
        found["aux"] = heads["aux"]
    measured = differences(case, found, {name: tensor.numpy() for name, tensor in net.state_dict().items()})
    assert len(measured) == len(found) + (2 * len(WATCHED) if case != "vd50" else 0)
    for name, settings, expected in losses(case):
        objective = objectives.build(settings)
        measured[name] = abs(float(objective.total(outputs, batch) / objective.count(batch)) / expected - 1)
    assert len(measured) >= 4 and max(measured.values()) <= TOLERANCE, measured


@pytest.mark.parametrize(
    "case, change",
    [
        ("r18", dict(rates=(12, 24, 37))),
        ("r18", dict(multi_grid=(4, 4))),
        ("r18", dict(align_corners=True)),
        ("r18", dict(output_stride=16)),
        ("r101_d16", dict(multi_grid=())),
        ("vd50", dict(multi_grid=(4, 4, 4))),
        ("vd50", dict(rates=(6, 12, 18))),
    ],
)
def test_the_record_notices_options_that_change_no_tensor(case, change):
    with torch.no_grad():
        found = filled(case, **change).eval()(torch.from_numpy(pictures(case))).numpy()
    assert differences(case, {"resized": found}, {})["resized"] > 100 * TOLERANCE


def test_the_recorded_cases_differ():
    golden = recorded()
    for one, other in (
        ("r50", "r50b"),
        ("r50", "r101"),
        ("r50", "r101_d16"),
        ("r50_odd", "r50_aligned"),
        ("r50", "vd50"),
    ):
        assert relative(golden[f"{one}/resized"], golden[f"{other}/resized"]) > 1e-2
    values = [tuple(golden[key]) for key in golden if "/loss_" in key]
    assert len(set(values)) == len(values) == 2 * 7 + 1 + 3


def test_the_plain_backbone_is_torchvisions_dilated_resnet():
    backbone, found = filled("r50b").eval().backbone, {}
    for name in ("layer1", "layer2", "layer3", "layer4"):
        getattr(backbone, name).register_forward_hook(
            lambda module, inputs, output, name=name: found.__setitem__(name, output.numpy())
        )
    with torch.no_grad():
        backbone(torch.from_numpy(pictures("r50b")))
    golden = recorded()
    measured = {
        name: relative(thinned("feature", array), golden[f"torchvision/{name}"]) for name, array in found.items()
    }
    assert len(measured) == 4 and max(measured.values()) <= TOLERANCE, measured


@pytest.mark.parametrize("options, count", COUNTS)
def test_parameter_counts(options, count):
    with torch.device("meta"):
        net = Model(Arch(num_classes=CLASSES, **options))
    assert sum(parameter.numel() for parameter in net.parameters()) == count


def test_a_fifth_of_the_labels_is_ignored():
    """Else both means of a loss were one."""
    share = np.mean(labels("r50") == 255)
    assert 0.15 < share < 0.25
