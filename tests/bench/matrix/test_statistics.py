"""Statistics of runs: medians, their intervals, ratios."""

import math

import numpy as np
import pytest

from zoo.bench.matrix.statistics import LogRatio, bootstrap_error, log_ratio, pair_median, row_median, summarize


def test_a_summary():
    summary = summarize([100.0, 104.0, 101.0])
    assert (summary.runs, summary.median, summary.least, summary.most) == (3, 101.0, 100.0, 104.0)
    assert summary.mean == pytest.approx(305 / 3)
    assert summary.cv == pytest.approx(np.std([100, 104, 101], ddof=1) / (305 / 3))
    assert summary.median_cv == pytest.approx(math.sqrt(math.pi / 2 / 3) * summary.cv)
    assert summary.low < 100 and summary.high > 102
    assert summarize([100.0, 104.0, 101.0]) == summary  # the same every time


def test_a_single_run_has_no_spread():
    summary = summarize([5.0])
    assert (summary.median, summary.low, summary.high, summary.cv, summary.median_cv) == (5.0, None, None, None, None)


def test_more_runs_narrow_the_interval():
    values = np.random.default_rng(1).normal(100, 1, 40)
    widths = [summarize(values[:count]) for count in (3, 10, 40)]
    assert [s.high - s.low for s in widths] == sorted((s.high - s.low for s in widths), reverse=True)
    assert widths[0].median_cv > widths[2].median_cv


def test_the_error_of_a_median_of_many():
    """That of normally distributed values is 1.2533 standard deviations / sqrt(n)."""
    rng = np.random.default_rng(2)
    errors = [bootstrap_error(rng.normal(0, 1, 200), row_median, rng) for _ in range(30)]
    assert np.mean(errors) == pytest.approx(1.2533 / math.sqrt(200), rel=0.1)


def test_the_median_of_pairs():
    assert pair_median(np.array([1.0, 2.0, 6.0])) == np.median([1, 1.5, 3.5, 2, 4, 6])
    assert np.array_equal(pair_median(np.array([[1.0, 2.0], [4.0, 8.0]])), [1.5, 6.0])


def test_the_error_of_a_median_of_pairs():
    """Asymptotically pi / 3 times the variance of a mean, for normally distributed values."""
    rng = np.random.default_rng(3)
    errors = [bootstrap_error(rng.normal(0, 1, 60), pair_median, rng) for _ in range(30)]
    assert np.mean(errors) == pytest.approx(math.sqrt(math.pi / 3 / 60), rel=0.1)


@pytest.mark.parametrize("runs", [3, 5, 10])
@pytest.mark.parametrize("paired", [False, True])
def test_intervals_hold_the_truth_as_often_as_they_say(runs, paired):
    """Nominally 95 of 100; with few runs more often, since they are made for the worst."""
    rng = np.random.default_rng(runs)
    held = 0
    for _ in range(200):
        a, b = (100 * np.exp(rng.normal(0, 0.01, runs)) for _ in range(2))
        if paired:
            drift = np.exp(rng.normal(0, 0.05, runs))
            a, b = a * drift, b * drift
        ratio = log_ratio(a, 0.95 * b, paired)
        held += abs(ratio.value - math.log(0.95)) < ratio.half_width
    assert held >= 185


def test_what_rounds_have_in_common_cancels():
    drift = np.array([1.0, 1.3, 0.8, 1.1, 0.9, 1.2])
    paired, unpaired = (log_ratio(100 * drift, 95 * drift, paired) for paired in (True, False))
    assert [paired.value, unpaired.value] == pytest.approx([math.log(0.95)] * 2)
    assert paired.error == pytest.approx(0, abs=1e-12) and unpaired.half_width > 0.2


def test_equal_values():
    assert log_ratio([5.0, 5.0], [5.0, 5.0], False) == pytest.approx((0.0, 0.0, 2), abs=1e-12)
    assert LogRatio(0.0, 0.0, 1).p == 1 and LogRatio(0.1, 0.0, 1).p == 0


def test_the_probability_is_that_of_students_t():
    stats = pytest.importorskip("scipy.stats")
    ratio = LogRatio(0.05, 0.02, 4)
    assert ratio.p == pytest.approx(2 * stats.t.sf(2.5, 4))
    assert ratio.half_width == pytest.approx(stats.t.ppf(0.975, 4) * 0.02)
