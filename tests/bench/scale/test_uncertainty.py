"""Error bars: they hold the prediction, and grow with the noise and with the distance from what was measured."""

import numpy as np
import pytest

from tests.bench.scale.calibrations import EIGHT, INTER, ONE, known, make
from zoo.bench.scale import model, uncertainty
from zoo.bench.scale.cluster import Cluster

CLUSTERS = [ONE, EIGHT, Cluster(2, 8), Cluster(4, 8), Cluster(128, 8)]


def widths(calibration, inter=INTER):
    return [np.log(bar.high / bar.low) for bar in uncertainty.intervals(calibration, CLUSTERS, inter, draws=100)]


def test_they_hold_the_prediction():
    calibration = make(noise=0.05, runs=[(EIGHT, 0.35)])
    built = model.build(calibration, INTER)
    for cluster, bar in zip(CLUSTERS, uncertainty.intervals(calibration, CLUSTERS, INTER)):
        assert bar.low <= model.predict(built, cluster).samples_per_s * (1 + 1e-9)
        assert bar.high >= model.predict(built, cluster).samples_per_s * (1 - 1e-9)


def test_a_measured_run_leaves_only_its_own_spread():
    calibration = make(noise=0.05, runs=[(EIGHT, 0.4)])
    low, high = uncertainty.intervals(calibration, [EIGHT])[0]
    assert low == pytest.approx(8 * 32 / 0.4) and high == pytest.approx(8 * 32 / 0.4)


def test_they_grow_with_the_distance():
    assert widths(make(noise=0.05)) == sorted(widths(make(noise=0.05)))


def test_they_grow_with_the_noise():
    assert widths(make(noise=0.2))[0] > 2 * widths(make(noise=0.02))[0] > 0


def test_they_grow_with_the_difference_of_rounds():
    steps = make(noise=0.05).steps[1][0]
    apart = make(steps={1: [[0.8 * value for value in steps], [1.2 * value for value in steps]]})
    assert widths(apart)[0] > 5 * widths(make(noise=0.05))[0]


def test_a_run_on_two_hosts_narrows_them():
    measured = make(runs=[(Cluster(2, 8), known(Cluster(2, 8), 0.75))])
    assert widths(measured)[3] < 0.6 * widths(make())[3]


def test_the_interval_is_that_of_the_model_where_nothing_else_varies():
    """Four hosts of a calibration with two: one doubling; 5 % to 95 % of a normal distribution are 3.29 sigma."""
    calibration = make(runs=[(EIGHT, known(EIGHT, 0.75)), (Cluster(2, 8), known(Cluster(2, 8), 0.75))], input={})
    assert uncertainty.model_error(calibration, Cluster(4, 8)) == pytest.approx(uncertainty.PER_HOST_DOUBLING)
    bar = uncertainty.intervals(calibration, [Cluster(4, 8)], draws=2000)[0]
    assert np.log(bar.high / bar.low) == pytest.approx(3.29 * uncertainty.PER_HOST_DOUBLING, rel=0.1)


def test_the_draws_repeat():
    calibration = make(noise=0.1)
    assert uncertainty.intervals(calibration, [EIGHT]) == uncertainty.intervals(calibration, [EIGHT])
