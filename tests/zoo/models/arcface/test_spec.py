"""The specification of ArcFace's IResNet: shapes, options, initializers."""

import math
from dataclasses import replace

import pytest
import torch

from zoo.data.batch import Field
from zoo.data.errors import UserError
from zoo.models import load_spec, resolve_arch
from zoo.models.arcface import spec
from zoo.models.arcface.torch import Model
from zoo.models.initializers import Initializer, constant, initialize, normal, uniform
from zoo.trainer.torch.model import named_tensors

TINY = spec.Arch(depth=18, width=8, embedding=16, num_classes=7, size=32)


@pytest.mark.parametrize("variant", ["insightface", "plsc"])
@pytest.mark.parametrize("depth", spec.BLOCKS)
def test_shapes_of_the_spec_and_the_model_are_equal(variant, depth):
    for options in (dict(), dict(width=8, embedding=16, size=33)):
        arch = spec.Arch(depth=depth, variant=variant, num_classes=5, **options)
        with torch.device("meta"):
            model_shapes = {name: tuple(tensor.shape) for name, tensor in named_tensors(Model(arch)).items()}
        shapes = spec.shapes(arch)
        assert shapes.pop("head.weight") == (5, arch.embedding)
        assert shapes == model_shapes


@pytest.mark.parametrize("depth, entries", [(18, 187), (34, 331), (50, 475), (100, 925), (200, 1807)])
def test_the_state_dict_has_as_many_entries_as_insightfaces(depth, entries):
    """Counts are recorded from insightface's classes and include num_batches_tracked of each normalization."""
    with torch.device("meta"):
        assert len(Model(spec.Arch(depth=depth)).state_dict()) == entries


@pytest.mark.parametrize("size, side", [(112, 7), (113, 8), (97, 7), (96, 6), (48, 3), (1, 1)])
def test_the_size_of_the_last_feature_map(size, side):
    arch = replace(TINY, size=size)
    assert arch.features == 64 * side * side
    with torch.no_grad():
        assert Model(arch).eval()(torch.zeros(2, 3, size, size)).shape == (2, 16)


def test_the_data_complete_the_architecture():
    fields = (Field("image", (48, 48, 3), "uint8"),)
    assert resolve_arch(spec, spec.Arch(), fields, 5) == spec.Arch(num_classes=5, size=48)
    assert resolve_arch(spec, spec.Arch(size=48, num_classes=6), fields, 5) == spec.Arch(num_classes=6, size=48)
    with pytest.raises(UserError, match="model.size: the model takes images of 112 x 112, but the data gives 48 x 48"):
        resolve_arch(spec, spec.Arch(size=112), fields, 5)
    with pytest.raises(UserError, match="model.size: the model takes square images, but the data gives 48 x 40"):
        resolve_arch(spec, spec.Arch(), (Field("image", (48, 40, 3), "uint8"),), 5)
    assert spec.Arch().features == 512 * 49  # without data, as in the published models


@pytest.mark.parametrize(
    "options, key",
    [
        (dict(width=0), "width"),
        (dict(embedding=0), "embedding"),
        (dict(size=0), "size"),
        (dict(num_classes=0), "num_classes"),
        (dict(dropout=1.0), "dropout"),
        (dict(dropout=-0.1), "dropout"),
    ],
)
def test_invalid_options(options, key):
    with pytest.raises(ValueError, match=f"^{key}: "):
        spec.Arch(**options)


def test_dropout_masks():
    assert spec.dropout_masks(spec.Arch()) == () and spec.dropout_masks(spec.Arch(variant="plsc", dropout=0.0)) == ()
    assert [(mask.name, mask.shape, mask.rate) for mask in spec.dropout_masks(spec.Arch(variant="plsc"))] == [
        ("dropout", (25088,), 0.4)
    ]
    assert spec.dropout_masks(replace(TINY, dropout=0.25))[0].shape == (256,)


def test_the_mask_is_applied_in_front_of_fc():
    """A mask of ones scales the inputs of fc by 1 / (1 - rate), one of zeros leaves the bias."""
    model, x = Model(replace(TINY, dropout=0.5)).eval(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        fc_inputs = []
        model.fc.register_forward_hook(lambda module, inputs, output: fc_inputs.append(inputs[0]))
        for mask in (None, torch.ones(2, 256, dtype=torch.uint8), torch.zeros(2, 256, dtype=torch.uint8)):
            model(x, mask)
    plain, doubled, zeros = fc_inputs
    torch.testing.assert_close(doubled, 2 * plain)
    assert not zeros.any() and plain.abs().min() > 0


def expected_initializer(arch, name, shape):
    """The initializations of insightface and PLSC."""
    plsc = arch.variant == "plsc"
    if name == "head.weight":
        return normal(math.sqrt(2 / (arch.embedding + arch.num_classes))) if plsc else normal(0.01)
    if ".running_var" in name:
        return Initializer("ones")
    if ".running_mean" in name:
        return Initializer("zeros")
    if "prelu" in name:
        return constant(0.25)
    if name == "fc.weight":
        return normal(math.sqrt(2 / 512)) if plsc else uniform(1 / math.sqrt(25088))
    if name == "fc.bias":
        return Initializer("zeros") if plsc else uniform(1 / math.sqrt(25088))
    if len(shape) == 4:
        return normal(math.sqrt(2 / (shape[0] * shape[2] * shape[3]))) if plsc else normal(0.1)
    return Initializer("ones") if name.endswith("weight") else Initializer("zeros")


@pytest.mark.parametrize("variant", ["insightface", "plsc"])
def test_initializers(variant):
    arch = spec.Arch(variant=variant, num_classes=1000)
    for name, shape in spec.shapes(arch).items():
        actual, expected = spec.initializer(arch, name, shape), expected_initializer(arch, name, shape)
        assert actual.distribution == expected.distribution and actual.scale == pytest.approx(
            expected.scale, rel=1e-12
        ), name


def test_prelu_slopes_start_at_a_quarter():
    assert initialize(constant(0.25), 1, "prelu.weight", (3,)).tolist() == [0.25] * 3
    default = torch.nn.PReLU(3)
    assert default.weight.tolist() == [0.25] * 3


def test_lr_and_decay_scale():
    """Weight decay on every parameter as in the original implementations; `weights`: on matrices and kernels."""
    shapes = spec.shapes(TINY)
    for arch in (TINY, replace(TINY, variant="plsc")):
        assert {
            name: spec.lr_and_decay_scale(arch, name)
            for name in shapes
            if spec.lr_and_decay_scale(arch, name) != (1.0, 1.0)
        } == ({} if arch.variant == "plsc" else {"features.weight": (0.0, 1.0)})
    weights_only = replace(TINY, decay="weights")
    decayed = {name for name in shapes if ".running_" not in name and spec.lr_and_decay_scale(weights_only, name)[1]}
    assert decayed == {name for name, shape in shapes.items() if len(shape) > 1}


def test_sharded_parameters_and_fp32_modules():
    shapes = spec.shapes(TINY)
    assert spec.SHARDED_PARAMETERS == ("head.weight",) and shapes["head.weight"] == (7, 16)
    assert [name for name in shapes if spec.is_head(name) or load_spec("arcface").not_pretrained(name)] == [
        "head.weight"
    ]
    model = Model(TINY)
    assert "head.weight" not in dict(model.named_parameters())
    assert [type(model.get_submodule(name)).__name__ for name in spec.FP32_MODULES] == ["Linear", "BatchNorm2d"]
    assert spec.min_batch_size(TINY) == 2
    norms = {name for name in shapes if spec.is_norm(name)}
    assert norms == {
        f"{name[: -len('running_var')]}{part}"
        for name in shapes
        if name.endswith("running_var")
        for part in ("weight", "bias", "running_mean", "running_var")
    }
