"""ArcFace's IResNet computed in every framework, against PyTorch's results and values recorded from insightface."""

import importlib.util
import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from tests.zoo.models.arcface.golden import TOLERANCE, TRAIN_TOLERANCE, differences, relative
from tests.zoo.trainer import arcface_worker as worker
from zoo.frameworks import FRAMEWORKS
from zoo.models.arcface import spec

INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
OTHERS = [name for name in INSTALLED if name != "torch"]
TOLERANCE_EVAL, TOLERANCE_STATISTICS = 1e-5, 1e-4
pytestmark = pytest.mark.slow  # trains in each framework


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The arrays that arcface_worker computes, by framework."""
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


def under(arrays, prefix):
    """Return the arrays whose keys have a prefix, without it."""
    return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}


@pytest.mark.parametrize("framework", INSTALLED)
def test_equals_upstream(results, framework):
    ours = under(results[framework], "golden/")
    measured = differences("r18", {"eval": ours.pop("eval"), "train": ours.pop("train")}, ours)
    assert measured["eval"] <= TOLERANCE
    assert len(measured) == 12 and max(measured.values()) <= TRAIN_TOLERANCE, measured


@pytest.mark.parametrize("framework", INSTALLED)
def test_parameters(results, framework):
    counts = under(results[framework], "parameters/")
    assert {name: int(count) for name, count in counts.items()} == {"insightface": 43_590_848, "plsc": 43_584_985}


@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("name", worker.MODELS)
def test_shapes_are_those_of_the_spec(results, framework, name):
    shapes = {key: tuple(shape) for key, shape in under(results[framework], f"{name}/shape/").items()}
    expected = spec.shapes(worker.MODELS[name])
    assert expected.pop("head.weight") == (3, 16)
    assert shapes == expected


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("name", worker.MODELS)
def test_embeddings_and_statistics_equal_those_of_pytorch(results, framework, name):
    ours, theirs = (under(results[source], f"{name}/") for source in (framework, "torch"))
    assert ours.keys() == theirs.keys()
    assert ours["eval"].shape == ours["train"].shape == (worker.BATCH, 16)
    assert relative(ours["eval"], theirs["eval"]) <= TOLERANCE_EVAL
    for key in ours:
        assert relative(ours[key], theirs[key]) <= TOLERANCE_STATISTICS, key


def test_every_option_changes_the_embeddings(results):
    """With the same pixels and weights; dropout does so in training only."""
    for mode, same in (("eval", {"insightface", "insightface_dropout"}), ("train", set())):
        values = {name: results["torch"][f"{name}/{mode}"] for name in worker.MODELS}
        for a, b in itertools.permutations(values, 2):
            assert (relative(values[a], values[b]) > 1e-3) != ({a, b} == same), (a, b)


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("case", worker.UPDATES)
def test_one_update(results, framework, case):
    """Momenta are compared relative to the largest one: those of biases before normalizations are rounding noise."""
    ours, theirs = (under(results[source], f"update/{case}/") for source in (framework, "torch"))
    assert ours.keys() == theirs.keys()
    largest = max(np.abs(value).max() for key, value in theirs.items() if key.startswith("optimizer/momentum/"))
    for key, value in theirs.items():
        if key.startswith("optimizer/momentum/"):
            assert np.abs(ours[key] - value).max() <= TOLERANCE_STATISTICS * largest, key
        else:
            np.testing.assert_allclose(
                ours[key], value, rtol=TOLERANCE_STATISTICS, atol=TOLERANCE_EVAL * np.abs(value).max(), err_msg=key
            )


@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("case", worker.UPDATES)
def test_only_the_weight_of_the_last_normalization_is_frozen(results, framework, case):
    """Its bias is trained, and it uses batch statistics; PLSC trains both."""
    name = case.split("/")[0]
    before = {key: worker.drawn(key, shape) for key, shape in spec.shapes(worker.MODELS[name]).items()}
    after = under(results[framework], f"update/{case}/")
    unchanged = {key for key in before if key in after and np.array_equal(before[key], after[key])}
    frozen = set() if name == "plsc" else {"features.weight"}
    assert unchanged == frozen and {key for key in before if f"optimizer/momentum/{key}" not in after} == frozen | {
        "head.weight",
        *(key for key in before if ".running_" in key),
    }
    # The gradient of a softmax cross-entropy sums to 0 over the classes.
    gradient = after["optimizer/momentum/features.bias"] - worker.DECAY * before["features.bias"]
    assert np.abs(gradient).max() > 1e-2 and abs(gradient.sum()) <= 1e-6


@pytest.mark.parametrize("framework", INSTALLED)
def test_synchronized_statistics_of_one_process_equal_its_own(results, framework):
    """This includes the normalization of the embeddings."""
    plain, synchronized = (
        under(results[framework], f"update/insightface/{mode}/") for mode in ("plain", "synchronized")
    )
    for key in ("loss", "grad_norm", "features.running_mean", "features.running_var", "fc.weight"):
        assert relative(synchronized[key], plain[key]) <= TOLERANCE_EVAL, key
