"""Statistics of runs: intervals, rank tests, the verdict and how often it is wrong."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from zoo.bench.statistics import (
    LogRatio,
    holm,
    judge,
    log_ratio,
    pair_median,
    rank_test,
    summarize,
)

MARGIN = 0.03


def test_a_summary():
    values = [100.0, 104.0, 101.0]
    summary = summarize(values)
    assert summary[:4] == (101.0, pytest.approx(305 / 3), 100.0, 104.0)
    assert summary.cv == pytest.approx(np.std(values, ddof=1) / (305 / 3))
    assert summary.median_cv == pytest.approx(math.sqrt(math.pi / 2 / 3) * summary.cv)
    assert summary.low < 100 and summary.high > 102 and summarize(values) == summary  # the same every time
    assert summarize([5.0])[4:] == (None, None, None, None)  # a single run has no spread


@pytest.mark.parametrize("runs, paired", [(3, False), (10, True)])
def test_intervals_hold_the_truth_as_often_as_they_say(runs, paired):
    """Nominally 95 of 100; with few runs more often, since they are made for the worst."""
    rng = np.random.default_rng(runs)
    held = 0
    for _ in range(100):
        a, b = (100 * np.exp(rng.normal(0, 0.01, runs)) for _ in range(2))
        drift = np.exp(rng.normal(0, 0.05, runs)) if paired else 1.0
        ratio = log_ratio(a * drift, 0.95 * b * drift, paired)
        held += abs(ratio.value - math.log(0.95)) < ratio.half_width
    assert held >= 92


def test_what_rounds_have_in_common_cancels():
    rng = np.random.default_rng(4)
    drift = 100 * np.exp(rng.normal(0, 0.2, 8))
    a, b = (drift * factor * np.exp(rng.normal(0, 0.002, 8)) for factor in (1.0, 0.95))
    paired, apart = log_ratio(a, b, True), log_ratio(a, b, False)
    assert math.exp(paired.value) == pytest.approx(0.95, abs=0.003) and paired.p < 1e-6
    assert paired.half_width < 0.05 * apart.half_width and apart.p > 0.3
    assert pair_median(np.array([0.0, 1.0, 5.0])) == pytest.approx(1.75)  # of 0, 0.5, 1, 2.5, 3, 5


def test_ranks():
    """Exact: of the 70 divisions of 8 runs, and the 64 signs of 6 pairs, two are as extreme as no overlap."""
    a, b = [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]
    assert rank_test(a, b, False) == pytest.approx(2 / 70) and rank_test(a, a, False) == pytest.approx(1)
    a, b = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.1, 2.3, 3.4, 4.7, 5.9, 7.3]
    assert rank_test(a, b, True) == pytest.approx(2 / 64) and rank_test(a, a, True) == 1


def test_holm():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


def verdict(slowdown, error, runs=6, rank_p=0.01):
    ratio = LogRatio(-slowdown, error, runs - 1)
    return judge(ratio, ratio.p, rank_p, runs, True, MARGIN)


def test_the_verdict():
    assert verdict(0.05, 0.005).name == "slower" and verdict(-0.05, 0.005).name == "faster"
    assert verdict(0.0, 0.005) == ("no slowdown", None) and verdict(0.02, 0.001).name == "no slowdown"
    assert verdict(-0.2, 0.1, rank_p=0.5).name == "cannot tell"
    assert verdict(0.05, 0.005, rank_p=0.2).name == "cannot tell"  # the ranks object: an outlier


def test_how_many_runs_would_tell():
    few = verdict(0.05, 0.03)
    assert few.name == "cannot tell" and 6 < few.repeats < 20
    deviation = 0.03 * math.sqrt(6)
    width = [stats.t.ppf(0.975, n - 1) * deviation / math.sqrt(n) for n in (few.repeats - 1, few.repeats)]
    assert width[1] < 0.05 <= width[0]
    assert verdict(0.0304, 0.3).repeats is None  # more than anybody wants
    assert verdict(0.3, 0.01, runs=2, rank_p=0.5).repeats == 6  # the least number of pairs that ranks can judge


def simulate(slowdown, noise, paired, runs, trials=12, cases=4):
    """Return how often each verdict is given, and in how many trials some case is called slower or faster."""
    rng = np.random.default_rng(6)
    verdicts, wrong = Counter(), 0
    for _ in range(trials):
        tests = []
        for _ in range(cases):
            a, b = (
                rng.normal(0, noise, runs) - (rng.random(runs) < 0.1) * rng.exponential(3 * noise, runs)
                for _ in range(2)
            )  # one run of ten meets a busy machine
            drift = rng.normal(0, 0.05, runs) if paired else 0.0
            a, b = 100 * np.exp(a + drift), 100 * (1 - slowdown) * np.exp(b + drift)
            tests.append((log_ratio(a, b, paired), rank_test(a, b, paired)))
        adjusted = holm([ratio.p for ratio, _ in tests])
        found = [judge(ratio, p, ranks, runs, paired, MARGIN).name for (ratio, ranks), p in zip(tests, adjusted)]
        verdicts.update(found)
        wrong += any(name in ("slower", "faster") for name in found)
    return {name: count / (trials * cases) for name, count in verdicts.items()}, wrong / trials


@pytest.mark.parametrize("paired, runs", [(False, 5), (True, 6)])
def test_how_often_the_verdict_is_wrong(paired, runs):
    for noise in (0.005, 0.05):
        found, wrong = simulate(0.0, noise, paired, runs)
        assert wrong <= 1 / 12  # one of the trials, each of four cases
        assert noise > 0.005 or found["no slowdown"] > 0.8
    found, _ = simulate(0.05, 0.005, paired, runs)
    assert found["slower"] > 0.9 and found.get("no slowdown", 0) == 0
    found, _ = simulate(0.0301, 0.02, paired, runs)
    assert found.get("no slowdown", 0) <= 0.05
