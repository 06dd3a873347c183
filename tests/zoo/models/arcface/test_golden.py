"""Our IResNet against numbers recorded from insightface's and PLSC's networks (tests/golden/README.txt says how)."""

from dataclasses import replace

import pytest
import torch

from tests.zoo.models.arcface.golden import (
    CASES,
    TOLERANCE,
    TRAIN_TOLERANCE,
    differences,
    drawn,
    pictures,
    recorded,
    relative,
)
from zoo.models.arcface.spec import NUM_PARAMETERS, Arch
from zoo.models.arcface.torch import Model


class Larger(Arch):
    """With ten times the epsilon."""

    epsilon = property(lambda self: 10 * super().epsilon)


def filled(arch):
    net = Model(arch)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if not name.endswith("num_batches_tracked"):
                tensor.copy_(torch.from_numpy(drawn(name, tuple(tensor.shape))))
    return net


@torch.no_grad()
def evaluated(arch):
    return filled(arch).eval()(torch.from_numpy(pictures()[:2])).numpy()


@pytest.mark.parametrize("case", CASES)
def test_equals_upstream(case):
    arch = Arch(**CASES[case])
    measured = differences(case, {"eval": evaluated(arch)}, {})
    assert measured["eval"] <= TOLERANCE


@pytest.mark.parametrize("case, statistics", [("r18", 10), ("r50", 10), ("plsc50", 5)])
def test_equals_upstream_in_training(case, statistics):
    """Without dropout, as recorded. Of PLSC the means alone: Paddle takes in another variance on a CPU."""
    net = filled(Arch(**CASES[case])).train()
    with torch.no_grad():
        found = {"train": net(torch.from_numpy(pictures())).numpy()}
    measured = differences(case, found, {name: tensor.numpy() for name, tensor in net.state_dict().items()})
    assert len(measured) == 1 + statistics and max(measured.values()) <= TRAIN_TOLERANCE, measured
    assert measured["bn1.running_mean"] <= TOLERANCE


@pytest.mark.parametrize("case", ["r18", "plsc50"])
def test_the_record_notices_another_epsilon(case):
    found = differences(case, {"eval": evaluated(Larger(**CASES[case]))}, {})
    assert found["eval"] > 100 * TOLERANCE


def test_the_recorded_cases_differ():
    golden = recorded()
    for mode, cases in (("eval", CASES), ("train", ("r18", "r50", "plsc50"))):
        values = [golden[f"{case}/{mode}"] for case in cases]
        for i, one in enumerate(values):
            assert all(relative(one, other) > 1e-2 for other in values[:i])


@pytest.mark.parametrize(
    "variant, depth, count",
    [(variant, depth, count) for variant, counts in NUM_PARAMETERS.items() for depth, count in counts.items()],
)
def test_parameter_counts(variant, depth, count):
    """Recorded from upstream's classes."""
    with torch.device("meta"):
        net = Model(replace(Arch(), variant=variant, depth=depth))
    assert sum(parameter.numel() for parameter in net.parameters()) == count
