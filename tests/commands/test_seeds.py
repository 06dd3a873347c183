"""zoo compare seeds: the runs that it starts and repeats, what it refuses, its tables and its t-test."""

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.journals import BEGIN, end, evaluations, write_journal
from tests.helpers.paths import CONFIGS
from tests.helpers.training import TINY
from zoo.commands import seeds, train
from zoo.compare import seed_tables
from zoo.compare.seed_tables import Result, Study
from zoo.config import loader

pytest.importorskip("scipy.stats")  # whose first import starts a process, which a stand-in would take for a run
RECIPE = str(CONFIGS / "tsm_demo.yaml")


class FakeTraining:
    """Stands in for the processes of train.py: writes the recipe and the journal of a run.

    Attributes:
        started: (framework, seed) of the runs so far.
        failing: runs that end with an error, before their last evaluation.
    """

    def __init__(self, folder):
        self.folder, self.started, self.failing, self.commands = folder, [], set(), []

    def __call__(self, command, stdout, **_):
        assert command[0] == sys.executable and command[2] == "train"
        request = train.read(train.parse(list(command[3:])))
        key = request.config.framework, request.config.seed
        self.started.append(key)
        self.commands.append(command)
        is_failing = key in self.failing
        print("out of memory" if is_failing else "done", file=stdout)
        metric = 0.9 + 0.01 * request.config.seed + 0.001 * len(key[0])
        events = [BEGIN, *evaluations(0.5, metric), end(20)]
        folder = self.folder / f"{key[0]}-{key[1]}"
        write_journal(folder, events[:2] if is_failing else events)
        (folder / "config.yaml").write_text(loader.render(request.resolved))
        return SimpleNamespace(returncode=2 if is_failing else 0)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A function that runs the program in a folder of its own, and the fake training."""
    training = FakeTraining(tmp_path / "study")
    monkeypatch.setattr(subprocess, "run", training)
    monkeypatch.setattr(seeds, "select_frameworks", lambda names: (names or "torch,paddle").split(","))

    def run(*words):
        return call_zoo("compare", "seeds", "-c", RECIPE, "--out", str(tmp_path / "study"), *words)

    return run, training


def test_every_seed_in_every_framework(study, capsys, tmp_path):
    run, training = study
    for words in (("--seeds", "3", "-o", "seed=1"), ("--seeds", "1")):  # chosen by the program; no spread
        assert run(*words) == 2 and "--seeds" in capsys.readouterr().err
    assert run("--seeds", "3", "-o", "data.loader=auto", "--device", "cpu") == 0
    assert training.started == [(name, seed) for seed in (1, 2, 3) for name in ("torch", "paddle")]
    words = ["-o", "data.loader=auto", "-o", "data.loader=reference", "--device", "cpu"]  # all read the same pixels
    assert all(command[-6:] == words for command in training.commands)
    out = capsys.readouterr().out
    assert "torch, seed 2: top1 0.9250, the best 0.9250" in out
    table = (tmp_path / "study/seeds.md").read_text()
    words = table.replace("|", " ").split()
    assert table in out and words[words.index("torch") :][:7] == [
        "torch",
        "0.9250",
        "0.0100",
        "0.9150",
        "0.9350",
        "0.9250",
        "0.0100",
    ]
    assert "torch - paddle -0.0010" in " ".join(words)


def test_complete_runs_are_not_repeated(study, capsys):
    run, training = study
    assert run("--seeds", "2") == 0
    first = capsys.readouterr().out
    assert run("--seeds", "2") == 0
    assert capsys.readouterr().out == first and len(training.started) == 4
    assert run("--seeds", "3", "--frameworks", "torch") == 0  # one more seed
    assert training.started[4:] == [("torch", 3)]


def test_a_failed_run_is_named_and_continued(study, capsys):
    run, training = study
    training.failing.add(("paddle", 1))
    assert run("--seeds", "2") == 2
    error = capsys.readouterr().err
    assert "paddle, seed 1: train.py exited with code 2" in error and "out of memory" in error
    training.failing.clear()
    assert run("--seeds", "2") == 0
    assert training.started == [("torch", 1), ("paddle", 1), ("paddle", 1), ("torch", 2), ("paddle", 2)]


def test_runs_of_other_settings_are_not_mixed_in(study, capsys):
    run, training = study
    assert run("--seeds", "2") == 0
    assert run("--seeds", "2", "-o", "optim.lr=0.5") == 2
    error = capsys.readouterr().err
    assert "torch-1 has a run of other settings" in error and "optim.lr: 0.02 -> 0.5" in error
    assert len(training.started) == 4


@pytest.mark.slow
def test_two_seeds_of_a_small_run(clips, tmp_path, capsys):
    pairs = {**TINY, "data.root": clips, "device": "cpu", "train.epochs": 1, "optim.warmup": "0 epochs"}
    words = [word for key, value in pairs.items() for word in ("-o", f"{key}={value}")]
    line = ["compare", "seeds", "-c", RECIPE, *words, "-n", 2, "--frameworks", "torch", "--out", tmp_path / "study"]
    assert call_zoo(*line) == 0
    out = capsys.readouterr().out
    assert "tsm_demo: top1 over the seeds 1, 2" in out and (tmp_path / "study/seeds.md").exists()


def cells_of(row):
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_run_is_read_from_its_journal(tmp_path):
    folder = write_journal(tmp_path, [BEGIN, *evaluations(0.5, 0.9, 0.95, 0.92), end(40)])
    expected = Result("paddle", 3, last=0.92, best=0.95, steps_to_target=20, seconds_to_target=120.0)
    assert seed_tables.read_result(folder, "paddle", 3, 0.9) == expected
    for target in (0.96, None):
        result = seed_tables.read_result(folder, "paddle", 3, target)
        assert result == expected._replace(steps_to_target=None, seconds_to_target=None)


def test_an_evaluation_that_is_not_finite_is_never_the_best(tmp_path):
    folder = write_journal(tmp_path, [BEGIN, *evaluations(None, 0.8), end(20)])  # null in the journal is NaN
    assert seed_tables.read_result(folder, "torch", 1, None) == Result("torch", 1, 0.8, 0.8)
    folder = write_journal(tmp_path, [BEGIN, *evaluations(None, None), end(20)])
    assert math.isnan(seed_tables.read_result(folder, "torch", 1, None).best)


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
