"""zoo sweep: the runs that it starts, continues and leaves alone, those that fail, its table, and what it refuses."""

import shlex
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.journals import BEGIN, end, evaluations, write_journal
from tests.helpers.paths import CONFIGS
from tests.helpers.training import TINY
from zoo.commands import sweep, train
from zoo.config import loader
from zoo.data import host
from zoo.distributed import machine

pytest.importorskip("scipy.stats")  # whose first import starts a process, which a stand-in would take for a run
RECIPE = str(CONFIGS / "tsm_demo.yaml")


class FakeTraining:
    """Stands in for the processes of train.py: writes the recipe and the journal of a run, whose best metric is
    10 x optim.lr + 0.02 x seed.

    Attributes:
        started: (optim.lr, train.batch, seed) of the runs so far.
        failing: runs that end with an error, before their last evaluation.
        environments: of the runs so far.
        together: a barrier at which runs wait for others.
    """

    def __init__(self):
        self.started, self.failing, self.environments = [], set(), []
        self.together = None

    def __call__(self, command, stdout, env, **_):
        if self.together:
            self.together.wait(60)
        self.environments.append(env)
        assert command[0] == sys.executable and command[2] == "train"
        request = train.read(train.parse(list(command[3:])))
        config = request.config
        key = config.optim.lr, config.train.batch, config.seed
        self.started.append(key)
        is_failing = key in self.failing
        print("out of memory" if is_failing else "done", file=stdout)
        events = [BEGIN, *evaluations(10 * key[0] + 0.02 * key[2], 0.01), end(20)]
        folder = Path(command[command.index("--out") + 1])
        write_journal(folder, events[:2] if is_failing else events)
        (folder / "config.yaml").write_text(loader.render(request.resolved))
        return SimpleNamespace(returncode=2 if is_failing else 0)


@pytest.fixture
def training(monkeypatch):
    fake = FakeTraining()
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


@pytest.fixture
def run(training, tmp_path):
    return lambda *words: call_zoo("sweep", "-c", RECIPE, "-o", "train.batch=4", "--out", tmp_path / "out", *words)


def rows(folder):
    """The cells of the table, without its heading."""
    lines = (folder / "sweep.md").read_text().splitlines()[4:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_combination_with_every_seed(run, training, tmp_path):
    assert run("-p", "optim.lr=0.01,0.03", "-p", "train.batch=4,8", "--seeds", "2") == 0
    grid = [(0.01, 4), (0.01, 8), (0.03, 4), (0.03, 8)]
    assert training.started == [(*setting, seed) for setting in grid for seed in (1, 2)]
    folders = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert folders == {f"optim.lr={lr},train.batch={batch}" for lr, batch in grid}
    table = rows(tmp_path / "out")
    assert [row[0] for row in table][::2] == ["optim.lr=0.03 train.batch=4", "optim.lr=0.01 train.batch=4"]
    # 0.32 and 0.34: t of one degree of freedom at 97.5 % is 12.7062, the standard error of the mean 0.01
    assert table[0][1:] == ["2 of 2", "0.3300", "0.2029 to 0.4571", "0.3200", "0.3400"]
    assert (tmp_path / "out/sweep.png").read_bytes()[:4] == b"\x89PNG"


def test_the_table_in_csv_and_latex(run, tmp_path):
    assert run("-p", "optim.weight_decay=0.1", "-p", "optim.lr=0.01,0.03") == 0
    lines = (tmp_path / "out/sweep.csv").read_text().splitlines()
    assert lines[0] == "setting,runs,mean,95% interval,min,max"
    assert lines[1].startswith("optim.weight_decay=0.1 optim.lr=0.03,1 of 1,0.3200,,0.3200,")
    text = (tmp_path / "out/sweep.tex").read_text()
    assert text.startswith(
        "\\begin{tabular}{lrrlrr}\n\\hline\nsetting & runs & mean & 95\\% interval & min & max \\\\\n"
    )
    assert "optim.weight\\_decay=0.1 optim.lr=0.03 & 1 of 1 & 0.3200 & -- & 0.3200 & 0.3200 \\\\" in text


def test_a_dry_run_prints_the_commands(run, training, capsys, tmp_path):
    assert run("-p", "optim.lr=0.01,0.03", "--seeds", "2", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == 4 and training.started == [] and not (tmp_path / "out").exists()
    for line, (rate, seed) in zip(lines, [(0.01, 1), (0.01, 2), (0.03, 1), (0.03, 2)]):
        words = shlex.split(line)
        config = train.read(train.parse(words[3:])).config
        assert (config.optim.lr, config.seed) == (rate, seed)


def test_only_what_is_missing_is_run(run, training, tmp_path):
    assert run("-p", "optim.lr=0.01,0.03") == 0
    assert rows(tmp_path / "out")[0] == ["optim.lr=0.03", "1 of 1", "0.3200", "-", "0.3200", "0.3200"]
    assert run("-p", "optim.lr=0.01,0.03", "--seeds", "2") == 0
    assert training.started == [(0.01, 4, 1), (0.03, 4, 1), (0.01, 4, 2), (0.03, 4, 2)]


def test_runs_at_once_have_devices_of_their_own(run, training, tmp_path, monkeypatch):
    files = tmp_path / "dev"
    files.mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "null"):
        (files / name).touch()
    monkeypatch.setattr(machine, "DEV", files)
    monkeypatch.setattr(host, "cores", lambda: range(8))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    training.together = threading.Barrier(2)  # of which each run waits for another one
    assert run("-p", "optim.lr=0.01,0.03", "--seeds", "2", "-j", "2") == 0
    assert sorted(training.started) == [(lr, 4, seed) for lr in (0.01, 0.03) for seed in (1, 2)]
    assert {each["CUDA_VISIBLE_DEVICES"] for each in training.environments} == {"0", "1"}
    assert {each["OMP_NUM_THREADS"] for each in training.environments} == {"4"}
    assert [row[:2] for row in rows(tmp_path / "out")] == [[f"optim.lr={lr}", "2 of 2"] for lr in (0.03, 0.01)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    devices = [each["CUDA_VISIBLE_DEVICES"] for each in sweep.shares(3)]
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "")
    assert "ASCEND_RT_VISIBLE_DEVICES" not in sweep.shares(3)[0]  # the user hides them
    assert devices == ["5", "7", "5"] and sweep.shares(3)[0]["OMP_NUM_THREADS"] == "3" and sweep.shares(1) == [{}]


def test_a_failed_run_is_named_and_the_others_go_on(run, training, capsys, tmp_path):
    training.failing = {(0.01, 4, 1), (0.01, 4, 2), (0.03, 4, 1)}
    assert run("-p", "optim.lr=0.01,0.03", "--seeds", "2") == 1
    error = capsys.readouterr().err
    assert "error: optim.lr=0.03: torch, seed 1: train.py exited with code 2" in error and "out of memory" in error
    table = rows(tmp_path / "out")
    assert [row[:2] for row in table] == [["optim.lr=0.03", "1 of 2"], ["optim.lr=0.01", "0 of 2"]]
    assert table[1][2:] == ["-"] * 4
    training.failing, training.started[:] = set(), []
    assert run("-p", "optim.lr=0.01,0.03", "--seeds", "2") == 0
    assert training.started == [(0.01, 4, 1), (0.01, 4, 2), (0.03, 4, 1)]


@pytest.mark.parametrize(
    "words, message",
    [
        (["-p", "optim.lrr=0.1"], "-p optim.lrr: unknown key for optim.name=sgd; did you mean optim.lr?"),
        (["-p", "optim.lr=0.1,x"], "-p optim.lr: expected a number, got 'x'"),
        (["-p", "optim.lr=0.1", "-o", "optim.lrr=1"], "-o optim.lrr: unknown key"),
        (["-p", "optim.lr=0.1,"], "-p optim.lr=0.1,: expected KEY=VALUE,VALUE"),
        (["-p", "optim.lr"], "-p optim.lr: expected KEY=VALUE,VALUE"),
        (["-p", "optim.lr=1", "-p", "optim.lr=2"], "-p optim.lr=2: optim.lr is given twice"),
        (["-p", "seed=1,2"], "seed: this program chooses it"),
        (["-p", "optim.lr=1", "--seeds", "0"], "argument -n/--seeds: expected a whole number of at least 1, got '0'"),
        (["-p", "optim.lr=1", "-j", "0"], "argument -j/--jobs: expected a whole number of at least 1, got '0'"),
        (["-p", "optim.lr=1", "-j", "2", "--device", "cuda:1"], "--device cuda:1: is one device for 2 runs"),
        (["-p", "optim.lr=0.1..0.2"], "-p optim.lr: a range needs --trials N"),
        (["-p", "optim.lr=0.2..0.1", "--trials", "2"], "-p optim.lr=0.2..0.1: expected KEY=LOW..HIGH"),
        (["-p", "optim.lr=-1..0.1", "--trials", "2"], "-p optim.lr: "),
        (["-p", "optim.lr=0.1", "--trials", "-1"], "argument --trials: expected a whole number of at least 0"),
    ],
)
def test_what_is_refused_before_anything_starts(run, training, capsys, tmp_path, words, message):
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1
    assert training.started == [] and not (tmp_path / "out").exists()


def test_the_table_stays_if_no_run_ends(tmp_path):
    sweep.report([sweep.Row("optim.lr=0.1", [0.5])], 1, "title", str(tmp_path))
    before = (tmp_path / "sweep.csv").read_text()
    sweep.report([sweep.Row("optim.lr=9", [])], 1, "title", str(tmp_path))
    assert "optim.lr=0.1" in before and (tmp_path / "sweep.csv").read_text() == before


def test_values_may_be_lists_and_folders():
    assert sweep.parse_choices(["data.root=../a,../b"]) == {"data.root": ["../a", "../b"]}
    words = ["data.size=8,[8, 16],[]", "optim.lr=0.1,0.1"]
    assert sweep.grid(sweep.parse_choices(words)) == [
        (f"data.size={size}", "optim.lr=0.1") for size in ("8", "[8, 16]", "[]")
    ]


def test_lists_of_lists_are_one_value():
    text = "[],[{a: {x: [1, 2], y: [3, 4]}}, b],{c: 1, d: 2},e"
    assert sweep.split_values(text) == ["[]", "[{a: {x: [1, 2], y: [3, 4]}}, b]", "{c: 1, d: 2}", "e"]


def test_the_folder_of_a_long_setting_has_a_short_name():
    folders = {sweep.folder_of("out", (f"data.augment={'x' * 300}{number}",)) for number in range(3)}
    assert len(folders) == 3 and max(map(len, folders)) < 140


RANGES = ("-p", "optim.lr=0.001..0.1", "-p", "train.batch=2..6", "-p", "data.size=32,64", "--trials", "6")


def test_a_search_in_ranges(run, training, tmp_path):
    pytest.importorskip("optuna")
    assert run(*RANGES) == 0
    started = list(training.started)
    assert len(set(started)) == 6 and all(0.001 <= lr <= 0.1 and batch in range(2, 7) for lr, batch, _ in started)
    assert min(started)[0] < 0.01 < max(started)[0]  # a logarithmic scale: as many below 0.01 as above
    table = rows(tmp_path / "out")
    assert table[0][0].startswith(f"optim.lr={max(started)[0]} train.batch={max(started)[1]} data.size=")
    assert run(*RANGES) == 0 and training.started == started  # all are known
    assert run("--trials", "2", "-p", "optim.lr=0.01,0.03") == 0  # another search in the same folder
    assert len(training.started) <= len(started) + 2


def test_a_search_that_was_interrupted_goes_on_as_it_would_have(run, training, tmp_path):
    pytest.importorskip("optuna")
    assert run(*RANGES) == 0
    started, training.started[:] = list(training.started), []
    (tmp_path / "out").rename(tmp_path / "whole")
    training.failing = {started[3]}
    assert run(*RANGES[:-1], "3") == 0 and run(*RANGES[:-1], "4") == 1
    training.failing = set()
    assert run(*RANGES) == 0
    assert training.started == started[:4] + started[3:]


@pytest.mark.slow
def test_a_sweep_of_a_small_run(clips, tmp_path, capfd):
    pairs = {**TINY, "data.root": clips, "device": "cpu", "train.epochs": 1, "optim.warmup": "0 epochs"}
    words = [word for key, value in pairs.items() for word in ("-o", f"{key}={value}")]
    words += ["-p", "optim.lr=0.01,0.02", "--out", tmp_path / "out"]
    assert call_zoo("sweep", "-c", RECIPE, *words) == 0
    assert {row[1] for row in rows(tmp_path / "out")} == {"1 of 1"}
