"""Results from journals, and the tables and the t-test against numpy and scipy."""

import math

import numpy as np
import pytest

from tests.helpers.journals import BEGIN, end, evaluations, write_journal
from zoo.compare import seed_tables
from zoo.compare.seed_tables import Result, Study


def cells_of(row):
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_run_is_read_from_its_journal(tmp_path):
    folder = write_journal(tmp_path, [BEGIN, *evaluations(0.5, 0.9, 0.95, 0.92), end(40)])
    expected = Result("paddle", 3, last=0.92, best=0.95, steps_to_target=20, seconds_to_target=120.0)
    assert seed_tables.read_result(folder, "paddle", 3, 0.9) == expected
    for target in (0.96, None):
        result = seed_tables.read_result(folder, "paddle", 3, target)
        assert result == expected._replace(steps_to_target=None, seconds_to_target=None)


def test_a_run_without_its_end_has_no_result(tmp_path):
    assert seed_tables.read_result(str(tmp_path), "torch", 1, None) is None
    folder = write_journal(tmp_path, [BEGIN, *evaluations(0.5)])
    assert seed_tables.read_result(folder, "torch", 1, None) is None
    resumed = [BEGIN, *evaluations(0.5), end(10), {"event": "resume", "time": 500.0, "step": 10}]
    assert seed_tables.read_result(write_journal(tmp_path, resumed), "torch", 1, None) is None


def test_the_time_of_a_resumed_run_is_left_out(tmp_path):
    """It includes the pause; its updates do not. What the resume reverted does not count."""
    before = [BEGIN, *evaluations(0.5, 0.99), {"event": "resume", "time": 5000.0, "step": 10}]
    folder = write_journal(tmp_path, [*before, *evaluations(0, 0.7, 0.9)[1:], end(30)])
    assert seed_tables.read_result(folder, "torch", 1, 0.9) == Result("torch", 1, 0.9, 0.9, 30, None)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_the_paired_test(count):
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(count)
    a, b = rng.normal(0.97, 0.01, (2, count))
    expected = stats.ttest_rel(a, b)
    low, high = expected.confidence_interval(0.95)
    mean, half_width, p = seed_tables.paired_test((a - b).tolist())
    assert (mean, p) == pytest.approx((np.mean(a - b), expected.pvalue), rel=1e-9)
    assert (mean - half_width, mean + half_width) == pytest.approx((low, high), rel=1e-9)


def test_differences_without_spread():
    assert seed_tables.paired_test([0.0, 0.0, 0.0]) == (0, 0, 1)
    assert seed_tables.paired_test([0.25, 0.25]) == (0.25, 0, 0)


def test_the_tables():
    rng = np.random.default_rng(0)
    metrics = {"torch": rng.normal(0.97, 0.01, 5), "paddle": rng.normal(0.97, 0.01, 5)}
    metrics["mindspore"] = metrics["torch"] - [0.05, 0.051, 0.049, 0.05, 0.052]
    results = [
        Result(name, seed, float(value), float(value) + 0.01, *((40 + seed, 60.0 * seed) if seed > 2 else ()))
        for name, values in metrics.items()
        for seed, value in enumerate(values, 1)
    ]
    rng.shuffle(results)
    results.sort(key=lambda result: list(metrics).index(result.framework))  # in order of frameworks, not of seeds
    title, _, head, _, *rows = seed_tables.lines(Study("resnet50_demo", "top1", 0.95, results))
    assert title == "resnet50_demo: top1 over the seeds 1, 2, 3, 4, 5" and "target 0.95" in cells_of(head)
    for row, (name, values) in zip(rows, metrics.items()):
        numbers = [
            values.mean(),
            values.std(ddof=1),
            values.min(),
            values.max(),
            values.mean() + 0.01,
            values.std(ddof=1),
        ]
        cells = [name, *(f"{number:.4f}" for number in numbers), "3 of 5", "44", "4.0"]
        assert cells_of(row) == cells
    pairs = [cells_of(row) for row in rows[6:]]
    assert [pair[0] for pair in pairs] == ["torch - paddle", "torch - mindspore", "paddle - mindspore"]
    difference = metrics["torch"] - metrics["paddle"]
    half = 2.7764451052 * difference.std(ddof=1) / math.sqrt(5)
    low, high = difference.mean() - half, difference.mean() + half
    assert pairs[0][1:4] == [f"{difference.mean():+.4f}", f"{low:+.4f} to {high:+.4f}", f"{half:.4f}"]
    assert pairs[0][4].endswith(", not significant") and pairs[1][4] == "0.000, significant"


def test_a_study_of_one_framework_without_a_target():
    results = [Result("torch", seed, 0.5, 0.5) for seed in (1, 2)]
    text = seed_tables.lines(Study("r", "top1", None, results))
    assert len(text) == 5
    assert cells_of(text[-1]) == ["torch", "0.5000", "0.0000", *["0.5000"] * 3, "0.0000", "0 of 2", "", ""]
