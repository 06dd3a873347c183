"""zoo bench matrix: its cases, the runs it starts, what it repeats, finds, skips, compares and refuses."""

import csv
import json
import os
import subprocess
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from evidence.dlperf import parse_name as parse
from tests.helpers.journals import write_journal
from tests.helpers.paths import CONFIGS, ROOT
from tests.helpers.speed_runs import FakeRuns, read_json, speed_events, write_speed_run
from tests.helpers.training import TINY
from zoo import cli, program
from zoo.bench.commands import matrix
from zoo.bench.matrix import process, results, rounds
from zoo.bench.matrix.cases import (
    Case,
    Folder,
    Recipe,
    Variant,
    expand,
    read_recipes,
    read_variants,
)
from zoo.bench.matrix.process import Load
from zoo.bench.matrix.results import read_folder
from zoo.bench.options import Cluster
from zoo.data import extras
from zoo.data.errors import UserError
from zoo.logs import journal

TSM = str(CONFIGS / "tsm_demo.yaml")
MATRIX = ["-c", TSM, "--frameworks", "torch,paddle", "--precisions", "fp32,amp", "--batches", "4,8"]
TORCH = ["-c", TSM, "--frameworks", "torch"]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A function that runs the program in a folder of its own, and the fake runs."""
    fake = FakeRuns()
    fake.missing, fake.load = (), Load(0.0)
    monkeypatch.setattr(rounds.process, "run", fake)
    monkeypatch.setattr(extras, "is_installed", lambda package: package not in fake.missing)
    monkeypatch.setattr(process, "measure_load", lambda: fake.load)
    monkeypatch.setattr(matrix.signal, "signal", lambda *_: None)

    def run(*words, out="m"):
        return cli.main(["bench", "matrix", *words, "--out", str(tmp_path / out)])

    return run, fake


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
    assert run(*MATRIX, "-n", "2") == 130
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
    fake.missing = ("mindspore",)
    fake.failures = {"paddle": "out of memory"}
    assert run("-c", TSM, "-n", "3") == 0
    assert [words[1] for words in fake.started].count("paddle") == 1  # it would fail again
    cases = {c["framework"]: c for c in read_json(tmp_path / "m/results.json")["cases"]}
    assert {name: (c["status"], c["reason"], c["count"]) for name, c in cases.items()} == {
        "torch": ("done", None, 3),
        "paddle": ("failed", "out of memory", 0),
        "mindspore": ("skipped", extras.missing("mindspore"), 0),
        "jax": ("done", None, 3),
    }
    out = capsys.readouterr().out
    assert f"{extras.how_to_install('mindspore')}\n  tsm_demo mindspore fp32 1x1 batch 16" in out
    assert "failed: tsm_demo paddle fp32 1x1 batch 16: out of memory" in out
    fake.failures = {}
    assert run("-c", TSM, "-n", "3") == 0 and len(fake.started) == 7
    assert run("-c", TSM, "-n", "3", "--retry") == 0 and len(fake.started) == 10


@pytest.mark.slow
def test_the_largest_batch_is_found_and_timed(bench, tmp_path, capsys):
    run, fake = bench
    fake.max_batch = 100
    words = ["-c", TSM, "--frameworks", "torch,paddle", "--find-batch", "-n", "2"]
    fake.stop_after = 5
    assert run(*words) == 130
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


@pytest.mark.parametrize("true", [0, 1, 7, 17, 1023])
@pytest.mark.parametrize("start", [1, 300])
def test_the_largest_batch_fits_and_little_more_would(true, start):
    tried = []
    found = rounds.largest(lambda batch: tried.append(batch) or batch <= true, start)
    assert found <= true <= found + max(1, found // 16) - (found < 32)
    assert len(tried) == len(set(tried)) <= 20


def test_more_runs_until_the_median_is_certain(bench, tmp_path):
    run, fake = bench
    rng = np.random.default_rng(1)
    noise = {"torch": 0.001, "paddle": 0.02, "mindspore": 0.5, "jax": 0.001}
    fake.speed = lambda folder, request, ranks: 100 * np.exp(rng.normal(0, noise[request.config.framework]))
    assert run("-c", TSM, "-n", "3", "--cv", "0.01") == 0
    runs = [words[1] for words in fake.started]
    assert runs.count("torch") == 3 and 3 < runs.count("paddle") < 20 and runs.count("mindspore") == 20
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
        "jax": "no slowdown",
    }
    started = len(fake.started)
    assert run(*old) == 1 and len(fake.started) == started  # compares, runs nothing
    assert "1 slower, 3 not slower by as much" in capsys.readouterr().out
    assert run(*old, "--margin", "0.2") == 0


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "name recipes with -c"),
        (["-c", "none.yaml"], "none.yaml"),
        (["-c", TSM, "-o", "optim.rate=1"], "optim.rate"),
        (["-c", TSM, "-o", "framework=torch"], "-o framework: the matrix chooses it"),
        (["-c", TSM, "--frameworks", "torch,keras"], "'keras'"),
        (["-c", TSM, "--precisions", "fp8"], "fp8"),
        (["-c", TSM, "--variant", "x"], "--variant x"),
        (["-c", TSM, "--against", "nowhere"], "--against nowhere: there is no complete speed run"),
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


def test_a_dry_run_checks_each_case_and_names_what_cannot_run(bench, capsys, tmp_path):
    run, fake = bench
    fake.failures = {"paddle": "fp16 is refused (exit code 2, /tmp/x.log)"}
    assert run(*MATRIX, "--dry-run") == 0
    out = capsys.readouterr().out
    assert "4 of 8 cases" in out and out.count("fp16 is refused\n") == 4 + 1 and not (tmp_path / "m").exists()
    assert len(fake.started) == 8 and all("--check-only" in words for words, _, _ in fake.commands)
    fake.failures = dict.fromkeys(("torch", "paddle"), "no")
    assert run(*MATRIX, "--dry-run") == 2  # as the matrix itself would end
    fake.failures = {}
    assert run(*MATRIX) == 0
    assert run(*MATRIX, "--count", "7", "--dry-run") == 2 and "another matrix" in capsys.readouterr().err


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
        found = results.read_folder(tmp_path / "m" / variant, "--out")
        assert {title.split()[3] for title in found} == {"1x1", "1x2"}
        assert all(len(runs) == 1 and len(runs[0].values.step_ms) == 12 for runs in found.values())


TSM, RESNET = str(CONFIGS / "tsm_demo.yaml"), str(CONFIGS / "resnet50_demo.yaml")
RECIPE = Recipe("tsm_demo", TSM, "tsm", "tsm")


def cases_of(*variants, **changes):
    arguments = Namespace(frameworks=["torch", "paddle"], precisions=["fp32", "amp"], batches=[8, 16], override=[],
                          find_batch=False, worlds=[Cluster(1, 1), Cluster(1, 2)])  # fmt: skip
    vars(arguments).update(changes)
    return expand(arguments, read_recipes([TSM, RESNET], []), variants or [Variant()])


def test_batches_of_the_recipes():
    cases = cases_of(batches=[], override=["train.global_batch=24"])
    assert {(case.recipe.name, str(case.world)): case.batch for case in cases} == {
        ("tsm_demo", "1x1"): 12,  # the global batch is shared, in micro-batches of 16 at most
        ("tsm_demo", "1x2"): 12,
        ("resnet50_demo", "1x1"): 24,
        ("resnet50_demo", "1x2"): 12,
    }
    assert not any(case.sets_batch for case in cases)
    assert {case.batch for case in cases_of(batches=[], find_batch=True)} == {None}


def test_runs_lie_in_the_layout_of_dlperf():
    case = Case(Variant(), RECIPE, "torch", "fp32", 8, Cluster(2, 4))
    stem = case.stem(Path("out"), 3)
    assert stem.as_posix() == "out/torch/tsm/bz8/2n4g/tsm_b8_fp32_3"
    name = parse(f"{stem}.log")
    assert (name.case, name.model, name.batch) == ("2n4g", "tsm", 8)
    assert case._replace(variant=Variant("slow")).stem(Path("out"), 1).parts[1] == "slow"


def test_variants_are_options_or_checkouts(tmp_path):
    assert read_variants([]) == [Variant()]
    found = read_variants(["fast:-o train.channels_last=true -o 'model.x=1 2'", f"other={ROOT}"])
    assert found[0] == Variant("base") and found[1].options == ("-o", "train.channels_last=true", "-o", "model.x=1 2")
    assert found[2] == Variant("other", ROOT)
    for word in ("slow", "slow:", "a b:-o x=1", "../x:-o x=1", f"slow={tmp_path}", "base:-o x=1", "slow:'"):
        with pytest.raises(UserError, match="--variant"):
            read_variants([word])


def write_runs(folder, seed, runs=6, factor=1.0, **fields):
    """Write runs of a case with 100 / factor samples/s, give or take 0.4 %."""
    rng = np.random.default_rng(seed)
    for number in range(1, runs + 1):
        name = f"{fields.get('framework', 'torch')}_{number}"
        write_speed_run(folder / name, 100 / factor * np.exp(rng.normal(0, 0.004)), **fields)


def compare(old, new, paired=False):
    return results.compare(read_folder(old, "old"), read_folder(new, "new"), 0.03, paired)


def test_too_few_runs(tmp_path):
    write_runs(tmp_path / "old", 1, runs=3)
    write_runs(tmp_path / "new", 2, runs=3, factor=1.3)
    found = compare(tmp_path / "old", tmp_path / "new")
    row = found["cases"][0]
    assert (row["verdict"], row["repeats_needed"]) == ("cannot tell", 4)  # three runs of each have no significant order
    assert "cannot tell: needs about 4 runs of each" in results.comparison_lines(found)[1]
    write_runs(tmp_path / "one", 3, runs=1)
    found = compare(tmp_path / "old", tmp_path / "one")
    assert found["cases"][0]["verdict"] == "cannot tell" and found["cases"][0]["ratio"] is None
    assert "3/1" in results.comparison_lines(found)[1]


def test_what_is_not_compared_is_named(tmp_path):
    write_runs(tmp_path / "old", 1)
    write_runs(tmp_path / "old", 1, framework="paddle")
    write_runs(tmp_path / "new", 2, protocol="k400/8x1x1@224")
    write_runs(tmp_path / "new", 2, framework="mindspore")
    found = compare(tmp_path / "old", tmp_path / "new")
    reasons = ["only in the older", "only in the newer", "the protocols differ"]
    assert found["cases"] == []
    assert all(reason in note for reason, note in zip(reasons, found["notes"], strict=True))


def test_folders_without_speed_runs_of_one_variant_are_refused(tmp_path):
    write_journal(tmp_path / "half", speed_events(100.0)[:-1])
    with pytest.raises(UserError, match="no complete speed run"):
        read_folder(tmp_path, "--against")
    (tmp_path / "matrix.json").write_text(json.dumps({"variants": {"slow": {}}}))
    with pytest.raises(UserError, match="--against .*base"):
        read_folder(tmp_path, "--against")


CASE = Case(Variant(), Recipe("tsm_demo", "tsm_demo.yaml", "tsm", "tsm"), "torch", "fp32", 8, Cluster(1, 1))


def test_a_folder_with_other_things_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="something else"):
        Folder(tmp_path, {})
    (tmp_path / "matrix.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        Folder(tmp_path, {})
    with pytest.raises(UserError, match="cannot be written to"):
        Folder(tmp_path / "notes.txt" / "m", {})


def test_the_journal_survives_a_truncated_line(tmp_path):
    target = Folder(tmp_path / "m", {})
    target.add("failure", CASE, reason="out of memory")
    with open(tmp_path / "m/benchmark.jsonl", "a") as file:
        file.write('{"kind": "run", "ca')
    with pytest.raises(UserError, match="is being written by process"):
        Folder(tmp_path / "m", {})
    target.close()
    target = Folder(tmp_path / "m", {})
    assert [entry["reason"] for entry in target.of("failure", CASE)] == ["out of memory"]
    target.add("run", CASE, run=1, busy=False)
    target.close()
    again = Folder(tmp_path / "m", {})
    assert [entry["kind"] for entry in again.attempts] == ["failure", "run"]
    again.forget("failure")
    assert again.of("failure", CASE) == []
