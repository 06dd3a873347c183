"""Initial weights: distributions, seeds, rows of sharded matrices."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.errors import UserError
from zoo.models import defaults
from zoo.models.deeplabv3plus import spec as deeplab
from zoo.models.initializers import ROWS_PER_BLOCK, Initializer, initialize, kaiming_normal, normal, uniform, zeros
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.models.tsm_mobilenet_v2 import spec as mobilenet

INITIALIZERS = [normal(0.5), uniform(0.5), Initializer("zeros"), Initializer("ones")]
NUM_ROWS = 2 * ROWS_PER_BLOCK + 700
RECORDED_NORMAL = [-1.079200029373169, -0.48589545488357544, 1.095096230506897, 0.9042432308197021]
RECORDED_UNIFORM = [0.2047058343887329, 0.20880186557769775, 0.2017683982849121, 0.5195763111114502]


@pytest.mark.parametrize("initializer", INITIALIZERS, ids=lambda initializer: initializer.distribution)
@pytest.mark.parametrize("shape", [(7,), (5, 3), (4, 3, 2, 2), (ROWS_PER_BLOCK + 1, 2)])
def test_initialize_is_a_pure_function(initializer, shape):
    first = initialize(initializer, 3, "layer1.0.conv1.weight", shape)
    np.random.default_rng(0).random(10), np.random.seed(1), np.random.rand(3)
    second = initialize(initializer, 3, "layer1.0.conv1.weight", shape)
    assert first.dtype == np.float32 and first.shape == shape and np.array_equal(first, second)
    assert first is not second and first.flags.writeable


def test_recorded_numbers_never_change():
    """Every numpy, machine and framework must start from the same weights."""
    assert initialize(normal(1.0), 1, "fc.weight", (2, 2)).ravel().tolist() == RECORDED_NORMAL
    assert initialize(uniform(1.0), 1, "fc.weight", (2, 2)).ravel().tolist() == RECORDED_UNIFORM


@pytest.mark.parametrize("initializer", INITIALIZERS[:2], ids=lambda initializer: initializer.distribution)
def test_other_names_and_seeds_give_other_numbers(initializer):
    names = ["fc.weight", "fc.bias", "conv1.weight", "layer1.0.conv1.weight", "layer1.1.conv1.weight"]
    drawn = [initialize(initializer, seed, name, (100,)) for name in names for seed in (0, 1, 2)]
    assert len({array.tobytes() for array in drawn}) == len(drawn)
    assert np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max() < 0.45  # and are uncorrelated


def test_blocks_of_rows_are_uncorrelated():
    array = initialize(normal(1.0), 0, "fc.weight", (2 * ROWS_PER_BLOCK, 3))
    assert abs(np.corrcoef(array[:ROWS_PER_BLOCK].ravel(), array[ROWS_PER_BLOCK:].ravel())[0, 1]) < 0.05


@given(st.sets(st.integers(1, NUM_ROWS - 1), max_size=6), st.sampled_from(INITIALIZERS))
@settings(max_examples=40)
def test_ranks_draw_their_rows_of_the_same_matrix(cuts, initializer):
    shape, edges = (NUM_ROWS, 2), [0, *sorted(cuts), NUM_ROWS]
    parts = [initialize(initializer, 5, "fc.weight", shape, rows) for rows in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), initialize(initializer, 5, "fc.weight", shape))


def test_normal():
    array = initialize(normal(0.02), 1, "x", (500, 400)).astype(np.float64)
    assert abs(array.mean()) < 0.02 * 5 / math.sqrt(array.size)
    assert array.std() == pytest.approx(0.02, rel=0.01) and abs(array).max() > 0.02 * 4
    assert np.mean(np.abs(array) < 0.02) == pytest.approx(0.6827, abs=0.005)


def test_uniform():
    array = initialize(uniform(0.25), 1, "x", (500, 400)).astype(np.float64)
    assert -0.25 <= array.min() < -0.249 and 0.249 < array.max() <= 0.25
    assert array.std() == pytest.approx(0.25 / math.sqrt(3), rel=0.01) and abs(array.mean()) < 0.002


def test_kaiming_normal_uses_the_fan_out():
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


def test_a_resnet_decays_matrices_and_kernels():
    """And neither biases nor normalizations, which have one axis."""
    arch = resnet.Arch(depth=50, num_classes=10, width=8)
    shapes = {name: shape for name, shape in resnet.shapes(arch).items() if ".running_" not in name}
    assert {name: resnet.lr_and_decay_scale(arch, name) for name in shapes} == {
        name: (1.0, float(len(shape) > 1)) for name, shape in shapes.items()
    }


def test_a_deeplab_s_classifiers_start_small():
    arch = deeplab.Arch(num_classes=19)
    shapes = deeplab.shapes(arch)
    small = {name for name, shape in shapes.items() if deeplab.initializer(arch, name, shape) == normal(0.01)}
    assert small == {"head.classifier.weight", "aux.classifier.weight"}


@pytest.mark.parametrize("name", ["fc.bias", "bn1.running_mean", "attention.in_proj_bias", "lstm.bias_ih_l0"])
def test_biases_and_running_means_start_at_zeros(name):
    assert zeros(name) == Initializer("zeros")


@pytest.mark.parametrize("spec", [resnet, tsm, mobilenet, deeplab], ids=lambda spec: spec.__name__.split(".")[-2])
@pytest.mark.parametrize("name, shape", [("layer1.0.gamma", (8,)), ("layer1.0.se.fc1.weight", (4, 8)), ("scale", ())])
def test_a_tensor_without_a_rule_is_an_error_and_no_layer_of_zeros(spec, name, shape):
    with pytest.raises(UserError, match=f"^{name}: `initializer` .* no rule for this tensor"):
        spec.initializer(spec.Arch(), name, shape)


def test_in_packages_vectors_that_are_no_weights_or_biases_need_a_rule():
    with pytest.raises(UserError, match=r"^block\.layer_scale: "):
        defaults.initializer(None, "block.layer_scale", (8,))
    assert defaults.initializer(None, "block.se.fc1.weight", (4, 8)).distribution == "normal"
