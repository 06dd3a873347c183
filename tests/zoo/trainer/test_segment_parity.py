"""Models of segmentation are the same in every framework; losses and class maps are in objective_cases.py."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from tests.zoo.models.tsm.golden import relative
from tests.zoo.trainer import segment_worker as worker
from zoo.frameworks import FRAMEWORKS

pytestmark = pytest.mark.slow

INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
OTHERS = [name for name in INSTALLED if name != "torch"]
EXACT = 1e-5
STATISTICS = 1e-4  # batch statistics of few pixels amplify rounding


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Framework -> its arrays."""
    folder = tmp_path_factory.mktemp("segment")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.zoo.trainer.segment_worker", name, folder / f"{name}.npz"],
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


def with_prefix(arrays, prefix):
    return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("name", worker.MODELS)
def test_logits_and_statistics_agree(results, framework, name):
    ours, expected = (with_prefix(results[each], f"{name}/") for each in (framework, "torch"))
    assert ours.keys() == expected.keys()
    assert {"eval", "train0"} < ours.keys() and ("train1" in ours) == (name != "paddleseg")
    assert ours["eval"].shape == (2, worker.CLASSES, *worker.MODELS[name][1])
    assert relative(ours["eval"], expected["eval"]) <= EXACT
    for key in ours:
        assert relative(ours[key], expected[key]) <= STATISTICS, key


def test_every_option_changes_the_logits(results):
    """Aligned corners, dilations and variants, from the same pixels and weights."""
    logits = {name: results["torch"][f"{name}/eval"][:, :, :32, :32] for name in worker.MODELS}
    for name, values in logits.items():
        assert all(relative(values, other) > 1e-2 for key, other in logits.items() if key != name), name


@pytest.mark.parametrize("framework", INSTALLED)
def test_a_batch_without_a_label_changes_statistics_alone(results, framework):
    """No loss, no gradient, no NaN; weight decay still shrinks the weights, as in every update."""
    after = with_prefix(results[framework], "update/")
    assert after["loss"] == 0 and after["grad_norm"] == 0 and after["scaler/skipped"] == 0
    assert all(np.isfinite(value).all() for value in after.values())
    before = {
        name: worker.drawn(name, value.shape)
        for name, value in after.items()
        if not name.startswith(("optimizer/momentum/", "scaler/")) and name not in ("loss", "grad_norm")
    }
    for name, value in before.items():
        if ".running_" not in name:
            np.testing.assert_allclose(after[name], value * (1 - worker.LR * 1e-3), rtol=1e-6, atol=1e-9)
    assert any(not np.array_equal(after[name], value) for name, value in before.items() if ".running_" in name)
