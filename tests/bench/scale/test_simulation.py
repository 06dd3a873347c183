"""The simulation and the closed form agree, and both follow what they are told."""

import numpy as np
import pytest

from zoo.bench.options import Cluster
from zoo.bench.scale import simulation
from zoo.bench.scale.calibration import Messages
from zoo.bench.scale.model import Link
from zoo.bench.scale.simulation import Setup

INTRA, INTER = Link(5e-6, 1e-11), Link(2e-5, 1e-10)


def make(cluster, **changes):
    return Setup(cluster, 0.35, 0.02, 128, Messages(100_000_000, 4), INTRA, INTER)._replace(**changes)


@pytest.mark.parametrize("cluster", [Cluster(1, 8), Cluster(4, 8), Cluster(128, 8)], ids=str)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise": 0.1},
        {"messages": Messages(100_000_000, 1)},
        {"messages": Messages(20_000_000_000, 8)},  # longer than the backward pass
        {"messages": Messages(100_000_000, 4, synchronized=140)},
        {"messages": Messages(100_000_000, 4, gathered=1_000_000)},
        {"input_rate": 900.0},
    ],
    ids=["plain", "noise", "one bucket", "network", "small messages", "gather", "input"],
)
def test_both_agree(cluster, changes):
    setup = make(cluster, **changes)
    simulated = simulation.simulate(setup, 60, seed=1).mean()
    assert simulation.closed_form(setup).seconds == pytest.approx(simulated, rel=0.03 if "noise" in changes else 0.015)


def test_without_noise_they_are_equal():
    setup = make(Cluster(4, 8), noise=0.0)
    seconds = simulation.simulate(setup, 5)
    np.testing.assert_allclose(seconds, simulation.closed_form(setup).seconds, rtol=1e-9)


def test_draws_depend_on_the_seed_alone():
    setup = make(Cluster(2, 8), noise=0.1, jitter=0.1)
    first, again, other = (simulation.simulate(setup, 5, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).min() > 0


def test_uneven_messages_take_longer():
    setup = make(Cluster(4, 8), messages=Messages(2_000_000_000, 1), noise=0.0)
    assert simulation.simulate(setup._replace(jitter=0.3), 5).min() > 1.05 * simulation.simulate(setup, 1)[0]


def test_a_host_that_reads_slowly_sets_the_pace():
    setup = make(Cluster(1, 8), input_rate=1000.0)
    assert simulation.simulate(setup, 20).mean() == pytest.approx(8 * 128 / 1000, rel=1e-3)
    assert simulation.closed_form(setup).limit == "input"
