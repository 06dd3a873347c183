"""zoo bench matrix: which runs it starts and in which order, what it repeats, finds, skips, compares and refuses."""

import csv
import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

from tests.helpers.paths import CONFIGS, ROOT
from tests.helpers.speed_runs import FakeRuns, read_json, write_speed_run
from tests.helpers.training import TINY
from zoo import cli, program
from zoo.bench.commands import matrix
from zoo.bench.dlperf import parse_name as parse
from zoo.bench.matrix import abilities, busy, comparison, rounds
from zoo.bench.matrix.busy import Load
from zoo.logs import journal

TSM = str(CONFIGS / "tsm_demo.yaml")
MATRIX = ["-c", TSM, "--frameworks", "torch,paddle", "--precisions", "fp32,amp", "--batches", "4,8"]
TORCH = ["-c", TSM, "--frameworks", "torch"]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A function that runs the program in a folder of its own, and the fake runs."""
    fake = FakeRuns()
    fake.skipped, fake.load = {}, Load(0.0)
    monkeypatch.setattr(rounds.process, "run", fake)
    monkeypatch.setattr(abilities, "impossible", lambda cases, *_: {c: fake.skipped[c.framework] for c in cases
                                                                    if c.framework in fake.skipped})  # fmt: skip
    monkeypatch.setattr(busy, "measure", lambda: fake.load)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*words, out="m"):
        return cli.main(["bench", "matrix", *words, "--out", str(tmp_path / out)])

    yield run, fake
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_every_case_runs_once_in_every_round(bench, tmp_path, capsys):
    run, fake = bench
    assert run(*MATRIX, "--worlds", "1x1,1x2", "-n", "3", "--drop", "2", "--count", "4") == 0
    assert len(fake.started) == 2 * 2 * 2 * 2 * 3
    rounds_of = [name.rpartition("_")[2] for *_, name in fake.started]
    assert rounds_of == sorted(rounds_of) and rounds_of[16] == "2"
    orders = [[words[:4] for words in fake.started[start : start + 16]] for start in (0, 16, 32)]
    assert orders[0] != orders[1] != orders[2]
    for words, _, _ in fake.commands:
        assert words[words.index("--speed") :][:5] == ["--speed", "--drop", "2", "--count", "4"]
    logs = [parse(path.as_posix()) for path in (tmp_path / "m").rglob("*.log")]
    assert len(logs) == 48 and all(logs) and {log.case for log in logs} == {"1n1g", "1n2g"}
    results = read_json(tmp_path / "m/results.json")
    case = next(c for c in results["cases"] if c["framework"] == "paddle" and c["processes"] == 2)
    assert (case["status"], case["count"], case["median"], case["cv"]) == ("done", 3, 108.0, 0.0)
    assert [r["run"] for r in case["runs"]] == [1, 2, 3] and case["runs"][0]["host_memory"] == 2_000_000
    with open(tmp_path / "m/results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16 and {row["median"] for row in rows} == {"106.0", "107.0", "108.0"}
    out = capsys.readouterr().out
    assert out.startswith("16 of 16 cases, 3 runs of each:") and "tsm_demo paddle amp 1x2 batch 8" in out


def test_an_interrupted_matrix_goes_on_and_half_a_run_is_done_anew(bench, tmp_path, capsys):
    run, fake = bench
    fake.stop_after = 5
    assert run(*MATRIX, "-n", "2") == 128 + 15
    assert "the same command goes on" in capsys.readouterr().err
    half = fake.started[5]
    folder = next(path for path in (tmp_path / "m").rglob(half[-1]) if f"/{half[1]}/" in path.as_posix())
    assert not any(event["event"] == "end" for event in journal.history(str(folder)))
    fake.stop_after = None
    assert run(*MATRIX, "-n", "2") == 0
    assert len(fake.started) == 6 + 16 - 5 and fake.started[6] == half
    assert sorted(set(fake.started)) == sorted(fake.started[:5] + fake.started[6:])
    done = len(fake.started)
    assert run(*MATRIX, "-n", "2") == 0 and len(fake.started) == done  # nothing is left to do
    assert run(*MATRIX, "-n", "3") == 0 and len(fake.started) == done + 8  # one more round


def test_another_matrix_or_other_code_in_the_same_folder_is_refused(bench, capsys, monkeypatch):
    run, fake = bench
    words = [*TORCH, "-n", "1"]
    assert run(*words) == 0
    for change, message in (
        (["--frameworks", "paddle"], "frameworks: ['torch'] -> ['paddle']"),
        (["--count", "7"], "count: 100 -> 7"),
        (["-o", "optim.lr=0.5"], "recipes: tsm_demo: optim.lr: 0.02 -> 0.5"),
        (["--variant", "x:-o optim.lr=0.5"], "variants: x"),
    ):
        assert run(*words, *change) == 2
        assert message in capsys.readouterr().err
    monkeypatch.setattr(matrix, "code_version", lambda: "other")
    assert run(*words) == 2
    assert "code (" in capsys.readouterr().err and len(fake.started) == 1


def test_what_cannot_run_is_named_and_the_rest_goes_on(bench, tmp_path, capsys):
    run, fake = bench
    fake.skipped = {"mindspore": "mindspore is not installed here"}
    fake.failures = {"paddle": "out of memory"}
    assert run("-c", TSM, "-n", "3") == 0
    assert [words[1] for words in fake.started].count("paddle") == 1  # it would fail again
    cases = {c["framework"]: c for c in read_json(tmp_path / "m/results.json")["cases"]}
    assert {name: (c["status"], c["reason"], c["count"]) for name, c in cases.items()} == {
        "torch": ("done", None, 3),
        "paddle": ("failed", "out of memory", 0),
        "mindspore": ("skipped", "mindspore is not installed here", 0),
    }
    out = capsys.readouterr().out
    assert "skipped: mindspore is not installed here\n  tsm_demo mindspore fp32 1x1 batch 16" in out
    assert "failed: tsm_demo paddle fp32 1x1 batch 16: out of memory" in out
    fake.failures = {}
    assert run("-c", TSM, "-n", "3") == 0 and len(fake.started) == 4
    assert run("-c", TSM, "-n", "3", "--retry") == 0 and len(fake.started) == 7


def test_a_case_that_fails_in_a_later_round_keeps_its_runs(bench, tmp_path):
    run, fake = bench

    def speed(folder, request, ranks):
        if folder.endswith("_3"):
            fake.failures = {"torch": "it is broken"}
        return 100.0

    fake.speed = speed

    def outcome():
        (case,) = read_json(tmp_path / "m/results.json")["cases"]
        return case["status"], case["count"]

    assert run(*TORCH, "-n", "5") == 0 and len(fake.started) == 4 and outcome() == ("failed", 3)
    assert run(*TORCH, "-n", "5") == 0 and len(fake.started) == 4 and outcome() == ("failed", 3)
    fake.failures = {}
    assert run(*TORCH, "-n", "5", "--retry") == 0 and len(fake.started) == 6 and outcome() == ("done", 5)


def test_a_matrix_of_which_nothing_runs(bench, capsys):
    run, fake = bench
    fake.skipped = {"torch": "no"}
    assert run(*TORCH) == 2 and "nothing of this matrix can be run" in capsys.readouterr().err
    fake.skipped, fake.failures = {}, {"torch": "it is broken (exit code 1)"}
    assert run(*TORCH) == 2 and "no run of this matrix has succeeded" in capsys.readouterr().err


def test_the_largest_batch_is_found_and_timed(bench, tmp_path, capsys):
    run, fake = bench
    fake.max_batch = 100
    words = ["-c", TSM, "--frameworks", "torch,paddle", "--find-batch", "-n", "2"]
    fake.stop_after = 5
    assert run(*words) == 143
    fake.stop_after = None
    assert run(*words) == 0
    assert [case["batch"] for case in read_json(tmp_path / "m/results.json")["cases"]] == [100, 100]
    trials = [(framework, batch) for _, framework, _, batch, name in fake.started if name.endswith("_trial")]
    assert len(trials) == len(set(trials)) + 1  # the one that was interrupted
    last = fake.commands[-1][0]
    assert {"train.epochs=1000000", "optim.base_batch=100"} <= set(last)  # long enough, and as steep as for any batch
    assert {memory is None for *_, memory in fake.commands} == {True, False}  # trials alone have a limit
    assert not any("trial" in path for path, _, names in os.walk(tmp_path) if "events.jsonl" in names)
    assert "trial: tsm_demo torch fp32 1x1 batch 128 ... out of memory" in capsys.readouterr().out
    fake.max_batch = 16  # one of the list
    assert run(*TORCH, "--find-batch", "--batches", "8,16", "-n", "1", out="b") == 0
    assert [case["batch"] for case in read_json(tmp_path / "b/results.json")["cases"]] == [8, 16]
    fake.max_batch = 0
    assert run(*TORCH, "--find-batch", out="c") == 2
    assert read_json(tmp_path / "c/results.json")["cases"][0]["reason"] == "out of memory even with a batch of 1"


@pytest.mark.parametrize("true", [1, 2, 7, 16, 17, 100, 1023, 5000])
@pytest.mark.parametrize("start", [1, 8, 300])
def test_the_largest_batch_fits_and_little_more_would(true, start):
    tried = []
    found = rounds.largest(lambda batch: tried.append(batch) or batch <= true, start)
    assert found <= true <= found + max(1, found // 16) - (found < 32)
    assert len(tried) == len(set(tried)) <= 20


def test_no_batch_and_every_batch_fits():
    assert rounds.largest(lambda batch: False, 16) == 0
    assert rounds.MAX_BATCH // 2 < rounds.largest(lambda batch: True, 24) <= rounds.MAX_BATCH


def test_more_runs_until_the_median_is_certain(bench, tmp_path):
    run, fake = bench
    rng = np.random.default_rng(1)
    noise = {"torch": 0.001, "paddle": 0.02, "mindspore": 0.5}
    fake.speed = lambda folder, request, ranks: 100 * np.exp(rng.normal(0, noise[request.config.framework]))
    assert run("-c", TSM, "-n", "3", "--cv", "0.01", "--max-repeats", "9") == 0
    runs = [words[1] for words in fake.started]
    assert runs.count("torch") == 3 and 3 < runs.count("paddle") < 9 and runs.count("mindspore") == 9
    for case in read_json(tmp_path / "m/results.json")["cases"]:
        assert (case["median_cv"] <= 0.01) == (case["framework"] != "mindspore")


def test_a_busy_machine_is_recorded_or_refused(bench, tmp_path, capsys):
    run, fake = bench
    fake.load = Load(0.5)
    assert run(*TORCH, "-n", "2", "--busy", "refuse") == 2 and not fake.started
    assert "the machine is busy: others take 50%" in capsys.readouterr().err
    assert run(*TORCH, "-n", "2") == 0
    attempts = [json.loads(line) for line in (tmp_path / "m/benchmark.jsonl").read_text().splitlines()]
    assert [(entry["busy"], entry["others_cpu"]) for entry in attempts] == [(True, 0.5)] * 2
    assert "the machine was busy before 2 runs" in capsys.readouterr().out


def noisy(fake, seed, factors=None, noise=0.004):
    rng = np.random.default_rng(seed)

    def speed(folder, request, ranks):
        slow = next((factor for mark, factor in (factors or {}).items() if mark in folder), 1.0)
        return 100 / slow * np.exp(rng.normal(0, noise))

    fake.speed = speed


def verdicts(path):
    return {case["case"].split()[1]: case["verdict"] for case in read_json(path)["cases"]}


def test_a_slower_framework_is_found_against_an_earlier_matrix(bench, tmp_path, capsys):
    run, fake = bench
    old = ["--against", str(tmp_path / "old")]
    noisy(fake, 1)
    assert run("-c", TSM, "-n", "6", out="old") == 0
    noisy(fake, 2, {"/paddle/": 1.05})
    assert run("-c", TSM, "-n", "6", *old) == 1
    assert verdicts(tmp_path / "m/against.json") == {
        "torch": "no slowdown",
        "paddle": "slower",
        "mindspore": "no slowdown",
    }
    started = len(fake.started)
    assert run(*old) == 1 and len(fake.started) == started  # compares, runs nothing
    assert "1 slower, 2 not slower by as much" in capsys.readouterr().out
    assert run(*old, "--margin", "0.2") == 0


def test_an_interval_that_says_nothing_is_not_printed(bench, tmp_path, capsys):
    run, fake = bench
    fake.speed = lambda folder, request, ranks: {"1": 10.0, "2": 100.0, "3": 1000.0}[folder[-1]]
    assert run(*TORCH, "-n", "3") == 0
    assert "too noisy" in capsys.readouterr().out
    (case,) = read_json(tmp_path / "m/results.json")["cases"]
    assert case["high"] > 4 * case["low"]


def test_against_a_checkout_runs_it_in_turns(bench, tmp_path, capsys):
    """The other checkout is the older one."""
    run, fake = bench
    rng = np.random.default_rng(1)
    fake.speed = lambda folder, request, ranks: (100 if "/other/" in folder else 94) * (1 + 0.002 * rng.random())
    assert run(*TORCH, "--against", str(ROOT)) == 1
    out = capsys.readouterr().out
    assert f"this checkout against {ROOT}, round by round:" in out and "2 variants in turns" in out
    words = [words for words, _, _ in fake.commands]
    assert len(words) == 24 and len({w[w.index("--turns") + 1] for w in words}) == 12  # a socket per round
    case = read_json(tmp_path / "m/against.json")["cases"][0]
    assert case["verdict"] == "slower" and case["runs"] == [12, 12] and case["ratio"] == pytest.approx(0.94, abs=0.004)


def test_variants_are_compared_round_by_round(bench, tmp_path, capsys):
    run, fake = bench
    drift = np.random.default_rng(3)
    rates = {}

    def speed(folder, request, ranks):
        number = folder.rpartition("_")[2]
        rate = rates.setdefault((number, request.config.framework), 100 * np.exp(drift.normal(0, 0.1)))
        return rate * np.exp(drift.normal(0, 0.002)) / (1.05 if "/slow/torch/" in folder else 1)

    fake.speed = speed
    words = ["-c", TSM, "--frameworks", "torch,paddle", "--variant", "slow:-o optim.lr=0.03"]
    assert run(*words, "-n", "8") == 1 and len(fake.started) == 2 * 2 * 8
    assert verdicts(tmp_path / "m/slow-against-base.json") == {"torch": "slower", "paddle": "no slowdown"}
    assert "slow against base, round by round:" in capsys.readouterr().out
    slow = [words for words, *_ in fake.commands if "/slow/" in " ".join(words)]
    assert len(slow) == 16 and all(words[-2:] == ["-o", "optim.lr=0.03"] for words in slow)
    del fake.commands[:]
    assert run(*words, "--no-turns", "-n", "1", out="n") == 0
    assert len(fake.commands) == 4 and not any("--turns" in words for words, _, _ in fake.commands)


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "name recipes with -c"),
        (["-c", "none.yaml"], "none.yaml"),
        (["-c", TSM, "-o", "optim.rate=1"], "optim.rate"),
        (["-c", TSM, "-o", "framework=torch"], "-o framework: the matrix chooses it"),
        (["-c", TSM, "--frameworks", "torch,jax"], "'jax'"),
        (["-c", TSM, "--precisions", "fp8"], "fp8"),
        (["-c", TSM, "--variant", "x"], "--variant x"),
        (["-c", TSM, "--against", "nowhere"], "--against nowhere: there is no such folder"),
        (["-c", TSM, "--against", "x", "--variant", "y:-o a=1"], "leave one of them out"),
    ],
)
def test_mistakes_are_named_before_anything_runs(bench, capsys, tmp_path, words, message):
    run, fake = bench
    assert run(*words) == 2
    assert message in capsys.readouterr().err and not fake.started and not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "words",
    [["--batches", "4,4"], ["--worlds", "8x"], ["--worlds", "0x1"], ["--cv", "1"], ["--margin", "x"],
     ["--timeout", "-1"], ["--repeats", "0"], ["--launch", "'"], ["--busy", "no"]],
)  # fmt: skip
def test_arguments_of_a_wrong_form(bench, capsys, words):
    assert bench[0]("-c", TSM, *words) == 2
    assert words[0] in capsys.readouterr().err


def test_two_matrices_without_a_common_case(bench, tmp_path, capsys):
    write_speed_run(tmp_path / "old/run", 100.0)
    write_speed_run(tmp_path / "m/run", 100.0, batch=9)
    assert bench[0]("--against", str(tmp_path / "old")) == 2
    assert "no case in common" in capsys.readouterr().err


def test_a_dry_run_starts_nothing(bench, capsys, tmp_path):
    run, fake = bench
    assert run(*MATRIX, "--dry-run") == 0
    assert "8 of 8 cases" in capsys.readouterr().out and not fake.started and not (tmp_path / "m").exists()


@pytest.mark.slow
def test_a_real_matrix_with_variants_that_take_turns_killed_half_way_and_continued(clips, tmp_path):
    words = [*TORCH, "-o", f"data.root={clips}", "--device", "cpu", "--batches", "2", "--worlds", "1x1,1x2,3x1"]
    words += [word for key, value in TINY.items() for word in ("-o", f"{key}={value}") if not key.startswith("train.b")]
    words += ["-n", "1", "--drop", "1", "--count", "12", "--variant", "last:-o train.channels_last=true"]
    command = program.command("bench", "matrix", *words, "--out", str(tmp_path / "m"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start():
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    killed, deadline = start(), time.monotonic() + 120
    while not list((tmp_path / "m").rglob("events.jsonl")):
        assert time.monotonic() < deadline and killed.poll() is None
        time.sleep(0.1)
    killed.kill()
    killed.communicate()
    again = start()
    out, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert "skipped: 3x1 needs 3 hosts, --hosts names 1" in out and "4 of 6 cases" in out
    assert out.count("2 variants in turns") == 2 and "last against base, round by round:" in out
    for variant in ("base", "last"):
        found = comparison.read_folder(tmp_path / "m" / variant, "--out")
        assert {title.split()[3] for title in found} == {"1x1", "1x2"}
        assert all(len(runs) == 1 and len(runs[0].values.step_ms) == 12 for runs in found.values())
