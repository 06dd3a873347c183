"""Initial weights: what is drawn, for whom, and how the nets' parameters are counted."""

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.models.initializers import ROWS_PER_BLOCK, Initializer, initialize, kaiming_normal, normal, uniform
from zoo.models.resnet import spec as resnet
from zoo.models.resnet.torch import Model as ResNet
from zoo.models.tsm import spec as tsm
from zoo.models.tsm.torch import Model as TSM
from zoo.trainer.torch.names import named_tensors

LAWS = [normal(0.5), uniform(0.5), Initializer("zeros"), Initializer("ones")]
LONG = 2 * ROWS_PER_BLOCK + 700
RECORDED_NORMAL = [-1.079200029373169, -0.48589545488357544, 1.095096230506897, 0.9042432308197021]
RECORDED_UNIFORM = [0.2047058343887329, 0.20880186557769775, 0.2017683982849121, 0.5195763111114502]


def shapes(Model, arch):
    """(name, shape) of every parameter and running statistic, without allocating any."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in named_tensors(Model(arch)).items()}


@pytest.mark.parametrize("depth", resnet.BLOCKS)
def test_the_spec_tells_every_tensor(depth):
    for width in (8, 64):
        arch = resnet.Arch(depth=depth, num_classes=10, width=width)
        assert resnet.shapes(arch) == shapes(ResNet, arch)
        arch = tsm.Arch(depth=depth, num_classes=10, width=width, segments=8, non_local=depth > 18)
        assert tsm.shapes(arch) == shapes(TSM, arch)


def trained(found):
    return sum(math.prod(shape) for name, shape in found.items() if ".running_" not in name)


@pytest.mark.parametrize("initializer", LAWS, ids=lambda initializer: initializer.distribution)
@pytest.mark.parametrize("shape", [(7,), (5, 3), (4, 3, 2, 2), (ROWS_PER_BLOCK + 1, 2)])
def test_draw_is_a_pure_function(initializer, shape):
    first = initialize(initializer, 3, "layer1.0.conv1.weight", shape)
    np.random.default_rng(0).random(10), np.random.seed(1), np.random.rand(3)
    second = initialize(initializer, 3, "layer1.0.conv1.weight", shape)
    assert first.dtype == np.float32 and first.shape == shape and np.array_equal(first, second)
    assert first is not second and first.flags.writeable


def test_recorded_numbers_never_change():
    """Another numpy, machine or framework must start from the same weights."""
    assert initialize(normal(1.0), 1, "fc.weight", (2, 2)).ravel().tolist() == RECORDED_NORMAL
    assert initialize(uniform(1.0), 1, "fc.weight", (2, 2)).ravel().tolist() == RECORDED_UNIFORM


@pytest.mark.parametrize("initializer", LAWS[:2], ids=lambda initializer: initializer.distribution)
def test_other_names_and_seeds_draw_other_numbers(initializer):
    names = ["fc.weight", "fc.bias", "conv1.weight", "layer1.0.conv1.weight", "layer1.1.conv1.weight"]
    drawn = [initialize(initializer, seed, name, (100,)) for name in names for seed in (0, 1, 2)]
    assert len({array.tobytes() for array in drawn}) == len(drawn)
    assert np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 0.45  # and are unrelated


def test_blocks_of_rows_are_unrelated():
    array = initialize(normal(1.0), 0, "fc.weight", (2 * ROWS_PER_BLOCK, 3))
    assert abs(np.corrcoef(array[:ROWS_PER_BLOCK].ravel(), array[ROWS_PER_BLOCK:].ravel())[0, 1]) < 0.05


@given(st.sets(st.integers(1, LONG - 1), max_size=6), st.sampled_from(LAWS))
@settings(deadline=None, max_examples=40)
def test_ranks_draw_their_own_rows_of_the_same_matrix(cuts, initializer):
    shape, edges = (LONG, 2), [0, *sorted(cuts), LONG]
    parts = [initialize(initializer, 5, "fc.weight", shape, rows) for rows in zip(edges, edges[1:])]
    assert np.array_equal(np.concatenate(parts), initialize(initializer, 5, "fc.weight", shape))


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_even_shares_of_a_sharded_classifier(size):
    edges = [LONG * rank // size for rank in range(size + 1)]
    parts = [initialize(normal(0.01), 1, "head.weight", (LONG, 4), rows) for rows in zip(edges, edges[1:])]
    assert np.array_equal(np.concatenate(parts), initialize(normal(0.01), 1, "head.weight", (LONG, 4)))


def test_normal():
    array = initialize(normal(0.02), 1, "x", (500, 400)).astype(np.float64)
    assert abs(array.mean()) < 0.02 * 5 / math.sqrt(array.size)
    assert array.std() == pytest.approx(0.02, rel=0.01) and abs(array).max() > 0.02 * 4
    assert np.mean(np.abs(array) < 0.02) == pytest.approx(0.6827, abs=0.005)


def test_uniform():
    array = initialize(uniform(0.25), 1, "x", (500, 400)).astype(np.float64)
    assert -0.25 <= array.min() < -0.249 and 0.249 < array.max() <= 0.25
    assert array.std() == pytest.approx(0.25 / math.sqrt(3), rel=0.01) and abs(array.mean()) < 0.002


def test_kaiming_goes_by_fan_out():
    initializer = kaiming_normal((64, 3, 7, 7))
    assert (initializer.distribution, initializer.scale) == ("normal", math.sqrt(2 / (64 * 49)))
    reference = torch.empty(256, 16, 3, 3)
    torch.nn.init.kaiming_normal_(reference, mode="fan_out", nonlinearity="relu")
    assert initialize(kaiming_normal(reference.shape), 1, "x", reference.shape).std() == pytest.approx(
        float(reference.std()), rel=0.03
    )


def test_constants_and_scalars():
    assert (initialize(Initializer("zeros"), 1, "x", (3, 2)) == 0).all() and (
        initialize(Initializer("ones"), 1, "x", (3, 2)) == 1
    ).all()
    for kind in ("zeros", "ones"):
        scalar = initialize(Initializer(kind), 1, "x", ())
        assert scalar.shape == () and scalar.dtype == np.float32 and scalar == (kind == "ones")


@pytest.mark.parametrize("depth, count", resnet.NUM_PARAMETERS.items())
def test_parameters_of_resnet(depth, count):
    assert trained(shapes(ResNet, resnet.Arch(depth=depth, num_classes=1000))) == count


def test_parameters_of_tsm():
    for depth, count in tsm.NUM_PARAMETERS.items():
        assert trained(shapes(TSM, tsm.Arch(depth=depth, num_classes=400, segments=8))) == count
    for depth, count in tsm.NUM_PARAMETERS_NON_LOCAL.items():
        assert trained(shapes(TSM, tsm.Arch(depth=depth, num_classes=400, segments=8, non_local=True))) == count
    assert tsm.NUM_PARAMETERS[50] == resnet.NUM_PARAMETERS[50] - (1000 - 400) * 2049  # the shift has no parameters


def resnet_law(name, shape):
    """torchvision's initialisation, written out."""
    norm = re.search(r"(^|\.)bn\d\.|downsample\.1\.", name) is not None
    if norm or ".running_" in name:
        return Initializer("ones") if name.endswith((".weight", ".running_var")) else Initializer("zeros")
    if name == "fc.weight":
        return uniform(1 / math.sqrt(shape[1]))
    if name == "fc.bias":
        return Initializer("zeros")
    assert len(shape) == 4, name
    return normal(math.sqrt(2 / (shape[0] * shape[2] * shape[3])))


def tsm_law(name, shape, found):
    """As ResNet; classifier N(0, 0.001); non-local blocks by PyTorch's default, their last normalisation 0."""
    if name == "fc.weight":
        return normal(0.001)
    if ".nl.bn." in name:
        return Initializer("ones") if name.endswith("running_var") else Initializer("zeros")
    if ".nl." in name:
        return uniform(
            1 / math.sqrt(found[name.rsplit(".", 1)[0] + ".weight"][1])
        )  # 1x1x1 kernels: fan-in = channels in
    return resnet_law(name, shape)


def same(one, other):
    return one.distribution == other.distribution and one.scale == pytest.approx(other.scale, rel=1e-12)


@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152])
def test_every_law_of_resnet(depth):
    arch = resnet.Arch(depth=depth, num_classes=10)
    found = shapes(ResNet, arch)
    for name, shape in found.items():
        assert same(resnet.initializer(arch, name, shape), resnet_law(name, shape)), name
    last = "bn3" if depth >= 50 else "bn2"
    zero = {
        name
        for name, shape in found.items()
        if resnet.initializer(resnet.Arch(depth=depth, zero_gamma=True), name, shape)
        != resnet.initializer(arch, name, shape)
    }
    assert zero == {
        f"layer{stage}.{block}.{last}.weight"
        for stage in (1, 2, 3, 4)
        for block in range(resnet.BLOCKS[depth][stage - 1])
    }
    assert all(
        resnet.initializer(resnet.Arch(depth=depth, zero_gamma=True), name, found[name]).distribution == "zeros"
        for name in zero
    )
    assert sum(resnet.is_norm(name) for name in found) == 4 * sum(name.endswith("running_var") for name in found)


@pytest.mark.parametrize("depth, non_local", [(18, False), (50, False), (50, True), (101, True)])
def test_every_law_of_tsm(depth, non_local):
    arch = tsm.Arch(depth=depth, num_classes=10, segments=8, non_local=non_local)
    found = shapes(TSM, arch)
    for name, shape in found.items():
        assert same(tsm.initializer(arch, name, shape), tsm_law(name, shape, found)), name
    assert sum(".nl.bn.weight" in name for name in found) == (5 if non_local else 0)


def test_a_non_local_block_has_the_scale_of_pytorch():
    """PyTorch's default for a convolution is uniform within 1 / sqrt(fan in), for weight and bias."""
    default = torch.nn.Conv3d(64, 32, 1)
    for name, tensor in default.named_parameters():
        initializer = tsm.initializer(tsm.Arch(), f"layer2.0.nl.theta.{name}", tuple(tensor.shape))
        assert initializer == uniform(64**-0.5) and float(tensor.detach().abs().max()) <= initializer.scale
    back = torch.nn.Conv3d(32, 64, 1)
    for name, tensor in back.named_parameters():
        initializer = tsm.initializer(tsm.Arch(), f"layer2.0.nl.out.{name}", tuple(tensor.shape))
        assert initializer == uniform(32**-0.5) and float(tensor.detach().abs().max()) <= initializer.scale
