"""The contract of all specs, and the specs of ResNet and TSM: shapes, initializers, parameter counts."""

import inspect
import math
import re

import pytest
import torch

from zoo import models
from zoo.data.batch import Field
from zoo.data.errors import UserError
from zoo.models.initializers import Initializer, normal, uniform
from zoo.models.resnet import spec as resnet
from zoo.models.resnet.torch import Model as ResNet
from zoo.models.tsm import spec as tsm
from zoo.models.tsm.torch import Model as TSM
from zoo.models.tsm_mobilenet_v2 import spec as mobile
from zoo.trainer.torch.model import named_tensors


@pytest.mark.parametrize("model", models.list_models())
def test_functions_of_a_spec_have_the_signatures_of_the_protocol(model):
    spec = models.load_spec(model)
    for name in models.SPEC_NAMES:
        if inspect.isfunction(vars(models.Spec).get(name)):
            _, *expected = inspect.signature(getattr(models.Spec, name)).parameters
            assert list(inspect.signature(getattr(spec, name)).parameters) == expected, name


@pytest.mark.parametrize("model", models.list_models())
def test_every_parameter_of_a_default_model_has_an_initializer_and_factors(model):
    spec = models.load_spec(model)
    arch = spec.Arch(num_classes=3)
    shape_of = spec.shapes(arch)
    assert shape_of.keys() >= set(spec.SHARDED_PARAMETERS) and any(spec.is_head(name) for name in shape_of)
    for name, shape in shape_of.items():
        assert spec.initializer(arch, name, shape).distribution in ("zeros", "ones", "constant", "normal", "uniform")
        assert all(factor >= 0 for factor in spec.lr_and_decay_scale(arch, name))
        assert spec.not_pretrained(name) or not spec.is_head(name)


def test_a_missing_model_names_the_available_ones():
    with pytest.raises(UserError, match=f"there is no model 'vgg'; there are: {', '.join(models.list_models())}"):
        models.load_spec("vgg")


def test_an_incomplete_spec_names_what_it_lacks(monkeypatch):
    monkeypatch.delattr(resnet, "shapes")
    models.load_spec.cache_clear()
    with pytest.raises(UserError, match="zoo/models/resnet/spec.py lacks shapes"):
        models.load_spec("resnet")


def test_a_framework_without_an_implementation_names_the_available_ones():
    with pytest.raises(
        UserError, match="the model tsm has no implementation for 'keras'.*torch, paddle, mindspore, jax"
    ):
        models.load_model_class("tsm", "keras")


@pytest.mark.parametrize("model", models.list_models())
def test_shapes_need_the_number_of_classes(model):
    spec = models.load_spec(model)
    with pytest.raises(ValueError, match="^num_classes: "):
        spec.shapes(spec.Arch())


def test_fewer_outputs_than_classes_are_refused():
    fields = (Field("image", (8, 8, 3), "uint8"),)
    with pytest.raises(UserError, match="model.num_classes: the model has 5 outputs, but the data has 7 classes"):
        models.resolve_arch(resnet, resnet.Arch(num_classes=5), fields, 7)
    assert models.resolve_arch(resnet, resnet.Arch(num_classes=9), fields, 7).num_classes == 9


def shapes(Model, arch):
    """Return the shape of every parameter and running statistic by name, without allocating any."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in named_tensors(Model(arch)).items()}


@pytest.mark.parametrize("depth", resnet.BLOCKS)
def test_shapes_of_the_spec_and_the_model_are_equal(depth):
    for width in (8, 64):
        arch = resnet.Arch(depth=depth, num_classes=10, width=width)
        assert resnet.shapes(arch) == shapes(ResNet, arch)
        arch = tsm.Arch(depth=depth, num_classes=10, width=width, segments=8, non_local=depth > 18)
        assert tsm.shapes(arch) == shapes(TSM, arch)


def count_parameters(shape_of):
    return sum(math.prod(shape) for name, shape in shape_of.items() if ".running_" not in name)


RESNETS = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}  # 1000 classes


@pytest.mark.parametrize("depth, count", RESNETS.items())
def test_parameters_of_resnet(depth, count):
    assert count_parameters(shapes(ResNet, resnet.Arch(depth=depth, num_classes=1000))) == count


def test_parameters_of_tsm():
    plain, non_local = (tsm.Arch(num_classes=400, segments=8, non_local=which) for which in (False, True))
    assert count_parameters(shapes(TSM, plain)) == 24_327_632
    assert count_parameters(shapes(TSM, non_local)) == 31_686_096
    assert RESNETS[50] - 24_327_632 == (1000 - 400) * 2049  # the shift has no parameters


def test_parameters_of_tsm_on_mobilenet_v2():
    assert count_parameters(mobile.shapes(mobile.Arch(num_classes=400))) == 2_736_272
    assert count_parameters(mobile.shapes(mobile.Arch(num_classes=1000))) == 3_504_872  # torchvision's


def test_every_block_of_a_mobilenet_but_the_first_of_a_stage_shifts():
    shifting = [i for i, block in enumerate(mobile.blocks(mobile.Arch())) if block.has_shortcut]
    assert shifting == [2, 4, 5, 7, 8, 9, 11, 12, 14, 15]


def resnet_initializer(name, shape):
    """torchvision's initialization."""
    norm = re.search(r"(^|\.)bn\d\.|downsample\.1\.", name) is not None
    if norm or ".running_" in name:
        return Initializer("ones") if name.endswith((".weight", ".running_var")) else Initializer("zeros")
    if name == "fc.weight":
        return uniform(1 / math.sqrt(shape[1]))
    if name == "fc.bias":
        return Initializer("zeros")
    assert len(shape) == 4, name
    return normal(math.sqrt(2 / (shape[0] * shape[2] * shape[3])))


def tsm_initializer(name, shape, shape_of):
    """ResNet's, but N(0, 0.001) for the classifier and PyTorch's default for non-local convolutions."""
    if name == "fc.weight":
        return normal(0.001)
    if ".nl.bn." in name:
        return Initializer("ones") if name.endswith("running_var") else Initializer("zeros")
    if ".nl." in name:
        return uniform(
            1 / math.sqrt(shape_of[name.rsplit(".", 1)[0] + ".weight"][1])
        )  # 1x1x1 kernels: fan-in = channels in
    return resnet_initializer(name, shape)


def same(a, b):
    return a.distribution == b.distribution and a.scale == pytest.approx(b.scale, rel=1e-12)


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
def test_initializers_of_resnet(depth):
    arch = resnet.Arch(depth=depth, num_classes=10)
    shape_of = shapes(ResNet, arch)
    for name, shape in shape_of.items():
        assert same(resnet.initializer(arch, name, shape), resnet_initializer(name, shape)), name
    last = "bn3" if depth >= 50 else "bn2"
    zero = {
        name
        for name, shape in shape_of.items()
        if resnet.initializer(resnet.Arch(depth=depth, zero_gamma=True), name, shape)
        != resnet.initializer(arch, name, shape)
    }
    assert zero == {
        f"layer{stage}.{block}.{last}.weight"
        for stage in (1, 2, 3, 4)
        for block in range(resnet.BLOCKS[depth][stage - 1])
    }
    assert all(
        resnet.initializer(resnet.Arch(depth=depth, zero_gamma=True), name, shape_of[name]).distribution == "zeros"
        for name in zero
    )
    assert sum(resnet.is_norm(name) for name in shape_of) == 4 * sum(name.endswith("running_var") for name in shape_of)


@pytest.mark.parametrize("depth, non_local", [(18, False), (50, False), (50, True), (101, True)])
def test_initializers_of_tsm(depth, non_local):
    arch = tsm.Arch(depth=depth, num_classes=10, segments=8, non_local=non_local)
    shape_of = shapes(TSM, arch)
    for name, shape in shape_of.items():
        assert same(tsm.initializer(arch, name, shape), tsm_initializer(name, shape, shape_of)), name
    assert sum(".nl.bn.weight" in name for name in shape_of) == (5 if non_local else 0)


def test_non_local_convolutions_have_pytorchs_default():
    """PyTorch's default for a convolution is uniform within 1 / sqrt(fan in), for weight and bias."""
    default = torch.nn.Conv3d(64, 32, 1)
    for name, tensor in default.named_parameters():
        initializer = tsm.initializer(tsm.Arch(), f"layer2.0.nl.theta.{name}", tuple(tensor.shape))
        assert initializer == uniform(64**-0.5) and float(tensor.detach().abs().max()) <= initializer.scale
    back = torch.nn.Conv3d(32, 64, 1)
    for name, tensor in back.named_parameters():
        initializer = tsm.initializer(tsm.Arch(), f"layer2.0.nl.out.{name}", tuple(tensor.shape))
        assert initializer == uniform(32**-0.5) and float(tensor.detach().abs().max()) <= initializer.scale
