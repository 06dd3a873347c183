"""Rank tests against scipy, the verdict, and how often it is wrong with noise as machines have it."""

import math
from collections import Counter

import numpy as np
import pytest

from tests.helpers.speed_runs import noisy_steps
from zoo.bench.matrix.significance import holm, judge, mann_whitney, paired_steps, signed_rank
from zoo.bench.matrix.statistics import LogRatio, log_ratio

MARGIN = 0.03


def test_mann_whitney_of_runs_is_the_exact_test():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(1)
    for sizes in ((4, 4), (5, 3), (7, 6)):
        a, b = (rng.normal(0, 1, size) for size in sizes)
        expected = stats.mannwhitneyu(b, a, method="exact")
        found = mann_whitney(a[:, None], b[:, None])
        assert found.p == pytest.approx(expected.pvalue)
        assert found.share == pytest.approx(expected.statistic / (len(a) * len(b)))


def test_ties_count_half():
    assert mann_whitney([[1.0], [1.0]], [[1.0], [1.0]]) == (0.5, 1.0)
    assert mann_whitney([[1.0, 2.0]], [[2.0, 3.0]]).share == 3.5 / 4


def test_steps_of_a_run_count_together():
    """Two runs of each that differ by their machine's state: the usual test of 200 steps would be certain."""
    rng = np.random.default_rng(2)
    runs = [noisy_steps(rng, milliseconds) for milliseconds in (100, 101, 110, 111)]
    found = mann_whitney(runs[:2], runs[2:])
    assert found.share > 0.9 and found.p == pytest.approx(1 / 3)
    stats = pytest.importorskip("scipy.stats")
    assert stats.mannwhitneyu(np.concatenate(runs[:2]), np.concatenate(runs[2:])).pvalue < 1e-20


def test_many_runs_are_drawn_from_all_divisions():
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, (12, 1)), rng.normal(0.8, 1, (12, 1))
    stats = pytest.importorskip("scipy.stats")
    exact = stats.mannwhitneyu(b[:, 0], a[:, 0], method="exact").pvalue
    assert mann_whitney(a, b).p == pytest.approx(exact, abs=0.01) and mann_whitney(a, b) == mann_whitney(a, b)


def test_signed_ranks():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(4)
    for count in (6, 9):
        differences = rng.normal(0.5, 1, count)
        assert signed_rank(differences).p == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)
    assert signed_rank([1.0] * 6).p == pytest.approx(2 / 64) and signed_rank([0.0] * 6).p == 1
    assert signed_rank(rng.normal(3, 1, 20)).p < 0.001  # drawn


def test_steps_round_by_round():
    rng = np.random.default_rng(5)
    speeds = 100 * np.exp(rng.normal(0, 0.3, 6))  # of the rounds
    a = [noisy_steps(rng, speed) for speed in speeds]
    b = [noisy_steps(rng, 1.2 * speed) for speed in speeds]
    found = paired_steps(a, b)
    assert found.share > 0.9 and found.p == pytest.approx(2 / 64)
    assert mann_whitney(a, b).p > 0.1  # which does not know of rounds


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
    stats = pytest.importorskip("scipy.stats")
    width = [stats.t.ppf(0.975, n - 1) * deviation / math.sqrt(n) for n in (few.repeats - 1, few.repeats)]
    assert width[1] < 0.05 <= width[0]
    assert verdict(0.0304, 0.3).repeats is None  # more than anybody wants
    assert verdict(0.3, 0.01, runs=2, rank_p=0.5).repeats == 6  # the least number of pairs that ranks can judge


def simulate(slowdown, noise, paired, runs, trials, cases=4):
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
            ranks = signed_rank(np.log(b / a)) if paired else mann_whitney(a[:, None], b[:, None])
            tests.append((log_ratio(a, b, paired), ranks.p))
        adjusted = holm([ratio.p for ratio, _ in tests])
        found = [judge(ratio, p, ranks, runs, paired, MARGIN).name for (ratio, ranks), p in zip(tests, adjusted)]
        verdicts.update(found)
        wrong += any(name in ("slower", "faster") for name in found)
    return {name: count / (trials * cases) for name, count in verdicts.items()}, wrong / trials


@pytest.mark.parametrize("paired, runs", [(False, 5), (True, 6)])
@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_equal_code_is_not_called_slower(paired, runs, noise):
    found, wrong = simulate(0.0, noise, paired, runs, 25)
    assert wrong <= 0.04  # of the trials, each of four cases
    if noise == 0.005:
        assert found["no slowdown"] > 0.9


@pytest.mark.parametrize("paired, runs", [(False, 5), (True, 6)])
def test_a_slowdown_of_5_percent_is_found_where_runs_repeat_within_half_a_percent(paired, runs):
    found, _ = simulate(0.05, 0.005, paired, runs, 25)
    assert found["slower"] > 0.9 and found.get("no slowdown", 0) == 0


@pytest.mark.parametrize("noise", [0.005, 0.02])
def test_a_slowdown_of_3_percent_is_not_ruled_out(noise):
    found, _ = simulate(0.0301, noise, True, 8, 25)
    assert found.get("no slowdown", 0) <= 0.05
