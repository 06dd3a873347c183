"""Operations that the specs count: those of PyTorch's counter, exactly, for the architecture of every recipe."""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.helpers.paths import CONFIGS
from zoo.config import loader
from zoo.data.batch import Field
from zoo.models import flops, load_model_class, load_spec, resolve_arch
from zoo.models.arcface import spec as arcface
from zoo.models.deeplabv3plus import spec as deeplabv3plus
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.models.tsm_mobilenet_v2 import spec as tsm_mobilenet_v2
from zoo.run.request import FIND

RECIPES = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml"))
CLASSES = 11


def recipe_case(recipe):
    """Return (model, arch, shape of a training sample) of a recipe."""
    resolved = loader.read(str(CONFIGS / recipe))
    cfg, model = loader.build(resolved, FIND)[0], resolved["model.name"].value
    data = cfg.data
    size = getattr(data, "crop", None) or (data.size, data.size)
    shape = (*([data.segments] if getattr(data, "segments", None) else []), *size, 3)
    return model, resolve_arch(load_spec(model), cfg.model, (Field("input", shape, "uint8"),), CLASSES), shape


def counted(model, arch, shape, batch=2):
    """Return the operations per sample that PyTorch counts in a forward pass in training, without computing any."""
    spec = load_spec(model)
    with torch.device("meta"), torch.no_grad():
        network = load_model_class(model, "torch")(arch).train()
        *frames, height, width, channels = shape
        masks = [torch.ones(batch, *mask.shape) for mask in spec.dropout_masks(arch)]
        with FlopCounterMode(display=False) as counter:
            outputs = network(torch.empty(batch, *frames, channels, height, width), *masks)
            for name in spec.SHARDED_PARAMETERS:  # a product of the objective: embeddings and the class matrix
                outputs @ torch.empty(spec.shapes(arch)[name]).T
    assert counter.get_total_flops() % batch == 0
    return counter.get_total_flops() // batch


@pytest.mark.parametrize("model, arch, shape", dict.fromkeys(map(recipe_case, RECIPES)))
def test_a_recipe_has_the_operations_that_pytorch_counts(model, arch, shape):
    assert load_spec(model).flops(arch, shape) == counted(model, arch, shape) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "model, arch, shape",
    [
        ("resnet", resnet.Arch(depth=18), (225, 200, 3)),
        ("resnet", resnet.Arch(depth=34, dilate=(False, True, True)), (65, 97, 3)),
        ("resnet", resnet.Arch(depth=101, padding="same"), (223, 225, 3)),
        ("resnet", resnet.Arch(depth=152, width=8, padding="same_pool"), (64, 33, 3)),
        ("tsm", tsm.Arch(depth=18, shift_place="block"), (3, 63, 64, 3)),
        ("tsm", tsm.Arch(temporal_pool=True), (8, 112, 112, 3)),
        ("tsm", tsm.Arch(non_local=True), (8, 224, 224, 3)),
        ("tsm", tsm.Arch(depth=34, width=16, non_local=True, temporal_pool=True), (4, 81, 99, 3)),
        ("tsm_mobilenet_v2", tsm_mobilenet_v2.Arch(), (8, 224, 224, 3)),
        ("tsm_mobilenet_v2", tsm_mobilenet_v2.Arch(width=16), (3, 97, 65, 3)),
        ("deeplabv3plus", deeplabv3plus.Arch(variant="paddleseg"), (97, 161, 3)),
        ("deeplabv3plus", deeplabv3plus.Arch(depth=18, stem="plain", output_stride=16), (129, 97, 3)),
        ("deeplabv3plus", deeplabv3plus.Arch(depth=101, auxiliary=False, multi_grid=(1, 2, 4)), (64, 128, 3)),
        ("arcface", arcface.Arch(depth=18, embedding=128), (50, 50, 3)),
        ("arcface", arcface.Arch(depth=152, variant="plsc", width=32), (112, 112, 3)),
    ],
)
def test_other_architectures_have_the_operations_that_pytorch_counts(model, arch, shape):
    arch = resolve_arch(load_spec(model), arch, (Field("input", shape, "uint8"),), CLASSES)
    assert load_spec(model).flops(arch, shape) == counted(model, arch, shape)


def test_published_models_have_the_operations_that_papers_state():
    """4.1 and 7.8 billion multiply-adds of ResNet-50 and -101, 33 of TSM with 8 frames, 6.3 of an IResNet-50."""
    assert resnet.flops(resnet.Arch(num_classes=1000), (224, 224, 3)) == 2 * 4_089_184_256
    mobile = tsm_mobilenet_v2.Arch(num_classes=1000, segments=1)
    assert tsm_mobilenet_v2.flops(mobile, (1, 224, 224, 3)) == 2 * 300_774_272  # "300 M" in arXiv:1801.04381, table 4
    assert resnet.flops(resnet.Arch(depth=101, num_classes=1000), (224, 224, 3)) == 2 * 7_801_405_440
    assert tsm.flops(tsm.Arch(num_classes=400, segments=8), (8, 224, 224, 3)) / 16e9 == pytest.approx(4.1, rel=0.01)
    backbone = arcface.flops(arcface.Arch(num_classes=1, size=112), (112, 112, 3))
    assert backbone / 2e9 == pytest.approx(6.3, rel=0.01)


def test_a_class_more_costs_a_row_of_the_class_matrix():
    arch = arcface.Arch(num_classes=1000, size=112)
    wider = replace(arch, num_classes=1001)
    assert arcface.flops(wider, (112, 112, 3)) - arcface.flops(arch, (112, 112, 3)) == 2 * 512


def test_a_weight_counts_twice_its_elements_per_position():
    assert flops.of_weights({"conv": (4, 3, 2, 2), "bias": (4,), "fc": (5, 4)}, {"conv": 10, "fc": 1}.get) == 1000
    assert [flops.pixels(7, 9, halvings) for halvings in (0, 1, 2, 3)] == [63, 20, 6, 2]
    layers = ("0.conv1", "0.conv2", "0.conv3", "0.downsample.0", "1.conv1")
    halved = [flops.halvings_in_stages(f"layer2.{layer}.weight", (1, 2, 2, 2), "conv2") for layer in layers]
    assert halved == [0, 1, 1, 1, 1]
