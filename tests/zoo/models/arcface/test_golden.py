"""IResNet against values recorded from insightface's and PLSC's implementations; see tests/golden/README.txt."""

from dataclasses import replace

import pytest
import torch

from tests.zoo.models.arcface.golden import (
    CASES,
    TOLERANCE,
    TRAIN_TOLERANCE,
    differences,
    drawn,
    input_images,
)
from zoo.models.arcface.spec import Arch
from zoo.models.arcface.torch import Model


def build(arch):
    model = Model(arch)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                tensor.copy_(torch.from_numpy(drawn(name, tuple(tensor.shape))))
    return model


@torch.no_grad()
def evaluate(arch):
    return build(arch).eval()(torch.from_numpy(input_images()[:2])).numpy()


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case == "r18" else pytest.mark.slow) for case in CASES]
)
def test_equals_upstream(case):
    arch = Arch(**CASES[case])
    measured = differences(case, {"eval": evaluate(arch)}, {})
    assert measured["eval"] <= TOLERANCE


@pytest.mark.parametrize(
    "case, statistics",
    [("r18", 10), pytest.param("r50", 10, marks=pytest.mark.slow), pytest.param("plsc50", 5, marks=pytest.mark.slow)],
)
def test_equals_upstream_in_training(case, statistics):
    """Without dropout, as recorded; PLSC's variances are not, because Paddle's running variance is another on a CPU."""
    model = build(Arch(**CASES[case])).train()
    with torch.no_grad():
        outputs = {"train": model(torch.from_numpy(input_images())).numpy()}
    measured = differences(case, outputs, {name: tensor.numpy() for name, tensor in model.state_dict().items()})
    assert len(measured) == 1 + statistics and max(measured.values()) <= TRAIN_TOLERANCE, measured
    assert measured["bn1.running_mean"] <= TOLERANCE


PARAMETERS = {  # without the classifier weight
    "insightface": {18: 24_025_600, 34: 34_139_328, 50: 43_590_848, 100: 65_156_160, 200: 118_833_920},
    "plsc": {50: 43_584_985, 101: 54_215_650, 152: 70_753_779},
}


@pytest.mark.parametrize(
    "variant, depth, count",
    [(variant, depth, count) for variant, counts in PARAMETERS.items() for depth, count in counts.items()],
)
def test_parameter_counts(variant, depth, count):
    """Counts are recorded from upstream's classes."""
    with torch.device("meta"):
        model = Model(replace(Arch(), variant=variant, depth=depth))
    assert sum(parameter.numel() for parameter in model.parameters()) == count
