"""ArcFace's nets: what the spec tells, and that they are the same in every framework."""

import importlib.util
import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from data.batch import Field
from data.errors import UserError
from tests.helpers.paths import ROOT
from tests.zoo.models.arcface.golden import (
    TOLERANCE,
    TRAIN_TOLERANCE,
    differences,
    relative,
)
from tests.zoo.trainer import arcface_worker as worker
from zoo.frameworks import FRAMEWORKS
from zoo.models import resolve_arch
from zoo.models.arcface import spec
from zoo.models.arcface.torch import Model
from zoo.models.initializers import Initializer, constant, initialize, normal, uniform
from zoo.trainer.torch.names import named_tensors

INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
OTHERS = [name for name in INSTALLED if name != "torch"]
EXACT, STATISTICS = 1e-5, 1e-4
TINY = spec.Arch(depth=18, width=8, embedding=16, num_classes=7, size=32)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Framework -> its arrays."""
    folder = tmp_path_factory.mktemp("arcface")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.zoo.trainer.arcface_worker", name, folder / f"{name}.npz"],
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for name in INSTALLED
    }
    arrays = {}
    try:
        for name, process in processes.items():
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors
            with np.load(folder / f"{name}.npz") as file:
                arrays[name] = dict(file)
    finally:
        for process in processes.values():
            process.kill()
    return arrays


def below(arrays, prefix):
    return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}


@pytest.mark.parametrize("framework", INSTALLED)
def test_equals_upstream(found, framework):
    ours = below(found[framework], "golden/")
    measured = differences("r18", {"eval": ours.pop("eval"), "train": ours.pop("train")}, ours)
    assert measured["eval"] <= TOLERANCE
    assert len(measured) == 12 and max(measured.values()) <= TRAIN_TOLERANCE, measured


@pytest.mark.parametrize("framework", INSTALLED)
def test_parameters(found, framework):
    counts = below(found[framework], "parameters/")
    assert {name: int(count) for name, count in counts.items()} == {"insightface": 43_590_848, "plsc": 43_584_985}


@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("name", worker.MODELS)
def test_every_tensor_is_the_specs(found, framework, name):
    shapes = {key: tuple(shape) for key, shape in below(found[framework], f"{name}/shape/").items()}
    expected = spec.shapes(worker.MODELS[name])
    assert expected.pop("head.weight") == (3, 16)
    assert shapes == expected


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("name", worker.MODELS)
def test_nets(found, framework, name):
    ours, theirs = (below(found[each], f"{name}/") for each in (framework, "torch"))
    assert ours.keys() == theirs.keys()
    assert ours["eval"].shape == ours["train"].shape == (worker.BATCH, 16)
    assert relative(ours["eval"], theirs["eval"]) <= EXACT
    for key in ours:
        assert relative(ours[key], theirs[key]) <= STATISTICS, key


def test_the_options_are_told_apart(found):
    """Slopes, epsilons and masks change what comes out of the same pixels and weights."""
    for mode, same in (("eval", {"insightface", "insightface_dropout"}), ("train", set())):
        values = {name: found["torch"][f"{name}/{mode}"] for name in worker.MODELS}
        for one in values:
            for other in set(values) - {one}:
                assert (relative(values[one], values[other]) > 1e-3) != ({one, other} == same), (one, other)


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("case", worker.UPDATES)
def test_one_update(found, framework, case):
    """Of momenta the largest of all counts: those of shifts in front of normalisations are nothing but rounding."""
    ours, theirs = (below(found[each], f"update/{case}/") for each in (framework, "torch"))
    assert ours.keys() == theirs.keys()
    largest = max(np.abs(value).max() for key, value in theirs.items() if key.startswith("momentum/"))
    for key, value in theirs.items():
        if key.startswith("momentum/"):
            assert np.abs(ours[key] - value).max() <= STATISTICS * largest, key
        else:
            np.testing.assert_allclose(ours[key], value, rtol=STATISTICS, atol=EXACT * np.abs(value).max(), err_msg=key)


@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("case", worker.UPDATES)
def test_the_last_scale_alone_is_frozen(found, framework, case):
    """Its shift is trained, and it uses the batch's statistics; PLSC trains both."""
    name = case.split("/")[0]
    before = {key: worker.drawn(key, shape) for key, shape in spec.shapes(worker.MODELS[name]).items()}
    after = below(found[framework], f"update/{case}/")
    still = {key for key in before if key in after and np.array_equal(before[key], after[key])}
    frozen = set() if name == "plsc" else {"features.weight"}
    assert still == frozen and {key for key in before if f"momentum/{key}" not in after} == frozen | {
        "head.weight",
        *(key for key in before if ".running_" in key),
    }
    # The mean over samples of what the loss derives from the embeddings: that of a softmax adds up to nothing.
    slope = after["momentum/features.bias"] - worker.DECAY * before["features.bias"]
    assert np.abs(slope).max() > 1e-2 and abs(slope.sum()) <= 1e-6


@pytest.mark.parametrize("framework", INSTALLED)
def test_synchronised_statistics_of_one_process_are_its_own(found, framework):
    """So the normalisation of embeddings is among those that are synchronised."""
    plain, synchronised = (below(found[framework], f"update/insightface/{kind}/") for kind in ("plain", "synchronised"))
    for key in ("loss", "grad_norm", "features.running_mean", "features.running_var", "fc.weight"):
        assert relative(synchronised[key], plain[key]) <= EXACT, key


@pytest.mark.parametrize("variant", ["insightface", "plsc"])
@pytest.mark.parametrize("depth", spec.BLOCKS)
def test_the_spec_tells_every_tensor(variant, depth):
    for options in (dict(), dict(width=8, embedding=16, size=33)):
        arch = spec.Arch(depth=depth, variant=variant, num_classes=5, **options)
        with torch.device("meta"):
            net = {name: tuple(tensor.shape) for name, tensor in named_tensors(Model(arch)).items()}
        shapes = spec.shapes(arch)
        assert shapes.pop("head.weight") == (5, arch.embedding)
        assert shapes == net


@pytest.mark.parametrize("depth, entries", [(18, 187), (34, 331), (50, 475), (100, 925), (200, 1807)])
def test_the_state_has_as_many_entries_as_insightfaces(depth, entries):
    """Recorded from insightface's classes; PyTorch counts batches in one more entry per normalisation."""
    with torch.device("meta"):
        assert len(Model(spec.Arch(depth=depth)).state_dict()) == entries


@pytest.mark.parametrize("size, side", [(112, 7), (113, 8), (97, 7), (96, 6), (48, 3), (1, 1)])
def test_the_side_of_the_last_map(size, side):
    arch = replace(TINY, size=size)
    assert arch.features == 64 * side * side
    with torch.no_grad():
        assert Model(arch).eval()(torch.zeros(2, 3, size, size)).shape == (2, 16)


def test_data_complete_the_architecture():
    fields = (Field("image", (48, 48, 3), "uint8"),)
    assert resolve_arch(spec, spec.Arch(), fields, 5) == spec.Arch(num_classes=5, size=48)
    assert resolve_arch(spec, spec.Arch(size=48, num_classes=6), fields, 5) == spec.Arch(num_classes=6, size=48)
    with pytest.raises(UserError, match="model.size: the net wants square pictures of 112 pixels, the data gives 48"):
        resolve_arch(spec, spec.Arch(size=112), fields, 5)
    with pytest.raises(UserError, match="model.size: the net wants square pictures, the data gives 48 x 40"):
        resolve_arch(spec, spec.Arch(), (Field("image", (48, 40, 3), "uint8"),), 5)
    assert spec.Arch().features == 512 * 49  # without data, as published


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
def test_impossible_options(options, key):
    with pytest.raises(ValueError, match=f"^{key}: "):
        spec.Arch(**options)


def test_noise():
    assert spec.dropout_masks(spec.Arch()) == () and spec.dropout_masks(spec.Arch(variant="plsc", dropout=0.0)) == ()
    assert [(noise.name, noise.shape, noise.rate) for noise in spec.dropout_masks(spec.Arch(variant="plsc"))] == [
        ("dropout", (25088,), 0.4)
    ]
    assert spec.dropout_masks(replace(TINY, dropout=0.25))[0].shape == (256,)


def test_the_mask_is_dropout():
    """A mask of ones scales the inputs of fc by 1 / (1 - rate), one of zeros leaves the bias."""
    net, x = Model(replace(TINY, dropout=0.5)).eval(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        seen = []
        net.fc.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
        for mask in (None, torch.ones(2, 256, dtype=torch.uint8), torch.zeros(2, 256, dtype=torch.uint8)):
            net(x, mask)
    plain, doubled, nothing = seen
    torch.testing.assert_close(doubled, 2 * plain)
    assert not nothing.any() and plain.abs().min() > 0


def law(arch, name, shape):
    """Both upstreams' initialisations, written out."""
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
def test_every_law(variant):
    arch = spec.Arch(variant=variant, num_classes=1000)
    for name, shape in spec.shapes(arch).items():
        found, expected = spec.initializer(arch, name, shape), law(arch, name, shape)
        assert found.distribution == expected.distribution and found.scale == pytest.approx(
            expected.scale, rel=1e-12
        ), name


def test_slopes_are_drawn():
    assert initialize(constant(0.25), 1, "prelu.weight", (3,)).tolist() == [0.25] * 3
    default = torch.nn.PReLU(3)
    assert default.weight.tolist() == [0.25] * 3


def test_rules():
    """Decay on everything, as all upstreams have it; `weights` spares what no convolution or matrix is."""
    shapes = spec.shapes(TINY)
    for arch in (TINY, replace(TINY, variant="plsc")):
        assert {
            name: spec.lr_and_decay_scale(arch, name)
            for name in shapes
            if spec.lr_and_decay_scale(arch, name) != (1.0, 1.0)
        } == ({} if arch.variant == "plsc" else {"features.weight": (0.0, 1.0)})
    sparing = replace(TINY, decay="weights")
    decayed = {name for name in shapes if ".running_" not in name and spec.lr_and_decay_scale(sparing, name)[1]}
    assert decayed == {name for name, shape in shapes.items() if len(shape) > 1}


def test_what_is_split_and_what_stays_wide():
    shapes = spec.shapes(TINY)
    assert spec.SHARDED_PARAMETERS == ("head.weight",) and shapes["head.weight"] == (7, 16)
    assert [name for name in shapes if spec.is_head(name) or spec.not_pretrained(name)] == ["head.weight"]
    net = Model(TINY)
    assert "head.weight" not in dict(net.named_parameters())
    assert [type(net.get_submodule(name)).__name__ for name in spec.FP32_MODULES] == ["Linear", "BatchNorm2d"]
    assert spec.min_batch_size(TINY) == 2
    norms = {name for name in shapes if spec.is_norm(name)}
    assert norms == {
        f"{name[: -len('running_var')]}{part}"
        for name in shapes
        if name.endswith("running_var")
        for part in ("weight", "bias", "running_mean", "running_var")
    }
