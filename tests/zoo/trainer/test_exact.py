"""In fp64 the three frameworks compute the same updates of all model families to 1e-12; a rounding to fp32 shows."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.helpers.paths import ROOT
from tests.helpers.processes import require_framework
from tests.zoo.trainer import exact_worker as worker
from zoo.frameworks import FRAMEWORKS

pytestmark = pytest.mark.slow

# Relative to the largest element of a tensor. Measured: 2e-13 for losses, weights, statistics and predictions, and
# 7e-13 for gradients and momentum, which batch normalizations of few values amplify.
TOLERANCE, GRADIENT_TOLERANCE = 1e-12, 5e-12
VANISHING = (
    1e-13  # of the largest gradient of the step: biases before a normalization have gradients of 0 but for noise
)


def excess(arrays, expected):
    """Return the largest difference of arrays as a multiple of its tolerance."""
    assert arrays.keys() == expected.keys()
    largest = {}
    for name, value in expected.items():
        step = name.partition("/")[0]
        largest[step] = max(largest.get(step, 0), np.abs(value).max())
    worst = 0.0
    for name, value in expected.items():
        assert name == "prediction" or arrays[name].dtype == np.float64, name
        is_gradient = name.startswith("gradient") or "/momentum/" in name
        limit = (GRADIENT_TOLERANCE if is_gradient else TOLERANCE) * np.abs(value).max()
        if is_gradient:
            limit += VANISHING * largest[f"gradient{name.partition('/')[0][-1]}"]
        difference = np.abs(arrays[name].astype(np.float64) - value).max()
        worst = max(worst, difference / max(limit, np.finfo(np.float64).tiny))
    return worst


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """framework -> case -> its arrays, computed when first asked for."""
    computed = {}

    def compute(framework):
        require_framework(framework)
        if framework == "torch" and framework not in computed:
            computed[framework] = worker.compute_all(framework)
        elif framework not in computed:
            path = tmp_path_factory.mktemp(framework) / "arrays.safetensors"
            process = subprocess.run(
                [sys.executable, "-m", "tests.zoo.trainer.exact_worker", framework, str(path)],
                cwd=ROOT,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
                capture_output=True,
                timeout=600,
                check=False,
            )
            assert process.returncode == 0, process.stderr[-4000:]
            computed[framework] = load_file(path)
        arrays = computed[framework]
        return {
            case: {key.partition("/")[2]: value for key, value in arrays.items() if key.partition("/")[0] == case}
            for case in worker.CASES
        }

    return compute


@pytest.mark.parametrize("case", worker.CASES)
@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "torch"])
def test_frameworks_compute_the_same_updates(results, framework, case):
    assert excess(results(framework)[case], results("torch")[case]) < 1


def round_an_activation(trainer):
    trainer.model.layer2[0].bn1.register_forward_hook(lambda module, inputs, output: output.float().double())


def round_pixel_constants(trainer):
    trainer.normalization = tuple(array.float().double() for array in trainer.normalization)


def round_smoothing(trainer):
    loss = trainer.objective.loss
    trainer.objective.loss = replace(loss, label_smoothing=float(np.float32(loss.label_smoothing)))


def change(trainer, **settings):
    trainer.plan = trainer.optimizer.plan = replace(trainer.plan, **settings)


def round_momentum(trainer):
    optimizer = trainer.plan.optimizer
    change(trainer, optimizer=replace(optimizer, momentum=float(np.float32(optimizer.momentum))))


def round_decay(trainer):
    groups = trainer.optimizer.groups
    trainer.optimizer.groups = [((lr, float(np.float32(decay)), kind), names) for (lr, decay, kind), names in groups]


def round_clipping(trainer):
    change(trainer, clip_norm=float(np.float32(trainer.plan.clip_norm)))


ROUNDINGS = (
    round_an_activation,
    round_pixel_constants,
    round_smoothing,
    round_momentum,
    round_decay,
    round_clipping,
)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_one_rounding_to_fp32_exceeds_the_tolerance(results, rounding):
    trainer, batches = worker.build("torch", worker.CASES["resnet"])
    rounding(trainer)
    assert excess(worker.compute(trainer, batches), results("torch")["resnet"]) > 5


def test_a_rounded_learning_rate_exceeds_the_tolerance(results):
    trainer, batches = worker.build("torch", worker.CASES["resnet"])
    lrs = tuple(float(np.float32(lr)) for lr in worker.LRS)
    assert excess(worker.compute(trainer, batches, lrs), results("torch")["resnet"]) > 5
