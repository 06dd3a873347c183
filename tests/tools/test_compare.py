"""tools/compare.py as a program, its comparison of recorded results, and its measures of difference."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from data.errors import UserError
from tests.helpers.paths import ROOT
from tests.helpers.training import DEMO, TINY
from tools import compare, compare_report
from zoo.weights import files

COMPARE = os.path.join(ROOT, "tools/compare.py")
FACES = {
    "model.variant": "insightface",
    "model.depth": 18,
    "model.width": 8,
    "model.embedding": 8,
    "data.size": 16,
    "data.num_classes": 40,
    "data.val_pairs": 10,
    "data.workers": 0,
    "train.batch": 4,
    "train.global_batch": 4,
    "task.sample_rate": 0.5,
}


def command(clips, *words, **changes):
    settings = {**TINY, "data.root": clips, "device": "cpu", **changes}
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    return [sys.executable, COMPARE, "-c", DEMO, *pairs, *map(str, words)]


def run(words, cwd):
    return subprocess.run(
        words, capture_output=True, text=True, timeout=200, cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.fixture(scope="module")
def alone(clips, tmp_path_factory):
    """A comparison of a single framework: the folder it ran in, and its output."""
    folder = tmp_path_factory.mktemp("alone")
    done = run(command(clips, "--frameworks", "torch", "--steps", 3), folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.slow
def test_one_framework_alone(alone):
    folder, out = alone
    assert "only one framework: nothing to compare it with" in out
    made = folder / "runs/compare-tsm_demo"
    assert sorted(os.listdir(made)) == ["curves.png", "torch-step1.safetensors", "torch.jsonl", "torch.log"]
    assert (made / "curves.png").read_bytes().startswith(b"\x89PNG\r\n")
    head, *rows = [json.loads(line) for line in (made / "torch.jsonl").read_text().splitlines()]
    assert (head["framework"], head["compute"], head["global_batch"]) == ("torch", "fp32", 4)
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert f"{row['step']:4}{row['loss']:11.6f}{0:12.1e}" in out


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="mindspore is not installed")
def test_two_frameworks_agree(clips, alone):
    """The results are in a folder of their own: none is used twice."""
    folder, _ = alone
    done = run(command(clips, "--frameworks", "torch,mindspore", "--steps", 3), folder)
    assert done.returncode == 0, done.stderr + done.stdout
    made = folder / "runs/compare-tsm_demo-2"
    assert {"curves.png", "torch.jsonl", "mindspore.jsonl", "mindspore-step1.safetensors"} <= set(os.listdir(made))
    assert "they agree within 0.001" in done.stdout and "over the first 3 steps" in done.stdout
    assert "after one update, gradients that differ most:" in done.stdout and "mindspore: fp32 on cpu" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line[:4].strip().isdigit()]
    assert len(rows) == 3 and all(len(row) == 7 and float(row[3]) < 1e-3 for row in rows)


TENSORS = {
    "fc.weight": np.ones((4, 5), np.float32),
    "bn.running_mean": np.full(3, 2.5e-8, np.float32),
    "momentum/fc.weight": np.ones((4, 5), np.float32),
    "momentum/bn.bias": np.full(3, 1e-8, np.float32),
    "evaluation/output": np.full((2, 3), 1e-6, np.float32),
}


@pytest.fixture
def recorded(tmp_path):
    """Results of a comparison of three steps in PyTorch: their folder, the header and the steps."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    header = {"framework": "torch", "device": "cpu", "compute": "fp32", "global_batch": 4}
    rows = [
        {"step": step, "lr": 0.1, "loss": 2.0 / step, "grad_norm": 1.0, "skipped": 0, "seconds": 0.1, "batch": step}
        for step in (1, 2, 3)
    ]
    write_lines(folder / "torch.jsonl", [header, *rows])
    files.write(str(folder / "torch-step1.safetensors"), TENSORS)
    return folder, header, rows


def write_lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


@pytest.fixture
def no_training(recorded, monkeypatch):
    """Frameworks are not run: their results are copies of the recorded ones."""

    def copy(framework, arguments, folder):
        for name in os.listdir(recorded[0]):
            if name.startswith(framework):
                shutil.copy(recorded[0] / name, folder)

    monkeypatch.setattr(compare, "run_worker", copy)


def compare_with(folder, tmp_path):
    """Compare PyTorch with the results in a folder: the exit code."""
    words = ["-c", DEMO, "--frameworks", "torch", "--steps", "3", "--against", folder, "--out", tmp_path / "new"]
    return compare.main(list(map(str, words)))


@pytest.mark.parametrize(
    "change, code, message",
    [
        (lambda row: row, 0, "they agree within"),
        (lambda row: {**row, "loss": row["loss"] * 1.01} if row["step"] == 2 else row, 1, "from step 2 on"),
        (lambda row: {**row, "loss": float("nan")} if row["step"] == 3 else row, 1, "from step 3 on"),
        (
            lambda row: {**row, "batch": 9} if row["step"] == 1 else row,
            2,
            "step 1: the frameworks were given different",
        ),
        (lambda row: {"step": 1}, 2, "cannot be read as results of an earlier comparison"),
    ],
)
def test_against_an_earlier_comparison(recorded, no_training, change, code, message, tmp_path, capsys):
    folder, header, rows = recorded
    shutil.copytree(folder, tmp_path / "old")
    write_lines(tmp_path / "old/torch.jsonl", [header, *map(change, rows)])
    assert compare_with(tmp_path / "old", tmp_path) == code
    out, err = capsys.readouterr()
    assert message in (err if code == 2 else out)
    assert ("torch (old)" in out) == (code != 2 or "different" in message)


def test_the_plot_is_left_out_without_matplotlib(recorded, no_training, tmp_path, monkeypatch, capsys):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    assert compare_with(recorded[0], tmp_path) == 0
    out = capsys.readouterr().out
    assert "matplotlib is missing, pip install '.[plot]'" in out and "they agree within" in out
    assert sorted(os.listdir(tmp_path / "new")) == ["torch-step1.safetensors", "torch.jsonl"]


def test_partial_fc_draws_other_classes_in_every_step(tmp_path, monkeypatch):
    """The worker counts the steps for the trainer, as train.py does."""
    steps = []
    assemble = compare.assemble

    def with_recorded_steps(request, group):
        job = assemble(request, group)
        original = job.trainer.step

        def step(micro_batches, lr, number):
            steps.append(number)
            return original(micro_batches, lr, number)

        monkeypatch.setattr(job.trainer, "step", step)
        return job

    monkeypatch.setattr(compare, "assemble", with_recorded_steps)
    words = [word for key, value in FACES.items() for word in ("-o", f"{key}={value}")]
    config = ["-c", "configs/arcface_synthetic.yaml", "--device", "cpu"]
    assert compare.main([*config, *words, "--steps", "3", "--out", str(tmp_path), "--worker", "torch"]) == 0
    assert steps == [0, 1, 2]
    _, rows = compare_report.load(str(tmp_path / "torch.jsonl"))
    assert [row.step for row in rows] == [1, 2, 3]


@pytest.mark.slow
def test_another_seed_is_not_compared(clips, alone):
    done = run(
        command(
            clips, "--frameworks", "torch", "--steps", 1, "--against", "runs/compare-tsm_demo", "--out", "other", seed=2
        ),
        alone[0],
    )
    assert done.returncode == 2 and "different batches" in done.stderr and "same seed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words, message",
    [
        (["--frameworks", "torch,jax"], "there is no 'jax'; there are: torch, paddle, mindspore"),
        (["--frameworks", "torch", "--steps", "0"], "must be at least 1"),
        (["--frameworks", "torch", "--out", "{here}"], "exists already and is not overwritten"),
        (["--frameworks", "torch", "--against", "{here}/nowhere"], "nowhere"),
        (["--frameworks", "torch", "-o", "model.shift_place=nome"], "did you mean none?"),
    ],
)
def test_errors_are_one_message(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_worker", lambda *arguments: pytest.fail("a framework was run"))
    assert compare.main(["-c", DEMO, *(word.format(here=tmp_path) for word in words)]) == 2
    _, err = capsys.readouterr()
    assert message in err and err.startswith("error: ") and not os.path.exists("runs")


@pytest.mark.slow
def test_a_framework_that_fails_shows_the_end_of_its_output(clips, tmp_path):
    done = run(command(clips, "--frameworks", "torch", "--steps", 1, "--device", "cuda:99", device="cuda:99"), tmp_path)
    assert done.returncode == 2 and "torch exited with code 2" in done.stderr and "there is no cuda:99" in done.stderr


def test_another_model_is_not_compared(tmp_path):
    for name, shape in (("a", (2, 3)), ("b", (3, 3))):
        files.write(str(tmp_path / f"{name}-step1.safetensors"), {"fc.weight": np.zeros(shape, np.float32)})
    with pytest.raises(UserError, match="do not train the same tensors"):
        compare_report.compare_tensors([(name, str(tmp_path / name)) for name in ("a", "b")], 1e-3)


@pytest.mark.parametrize(
    "key, change, message",
    [
        ("fc.weight", 0.0, None),
        ("fc.weight", 0.01, "fc.weight differs by 9.9e-03"),
        ("fc.weight", float("nan"), "fc.weight differs by nan"),
        ("bn.running_mean", 1e-7, None),  # 0 but for rounding, so it is five times as large in one as in the other
        ("bn.running_mean", 1e-5, "bn.running_mean differs by 1.0e-02"),
        ("momentum/fc.weight", 0.2, None),
        ("momentum/fc.weight", 0.5, "momentum/fc.weight differs by 1.1e-01"),
        ("momentum/bn.bias", 1e-6, None),
        ("momentum/bn.bias", 1e-3, "momentum/bn.bias differs by 1.0e+00"),
        ("evaluation/output", 1e-10, None),
        ("evaluation/output", 1e-5, "evaluation/output differs by 9.1e-01"),
    ],
)
def test_tensors_that_differ_too_much_after_an_update(key, change, message, tmp_path):
    """One number of one tensor differs; numbers that are only rounding are not compared relative to themselves."""
    for name, more in (("a", 0.0), ("b", change)):
        array = TENSORS[key].copy()
        array.flat[0] += more
        files.write(str(tmp_path / f"{name}-step1.safetensors"), {**TENSORS, key: array})
    problems = compare_report.compare_tensors([(name, str(tmp_path / name)) for name in ("a", "b")], 1e-3)
    assert problems == ([f"after one update, {message}"] if message else [])


def test_difference():
    difference = compare_report.relative_difference
    assert difference([2.0, 2.0, 2.0]) == 0 == difference([0.0, 0.0])
    assert difference([1.0, 2.0]) == difference([2.0, 1.0]) == 0.5
    assert difference([-1.0, 1.0]) == 2.0 and difference([-4.0, -3.0]) == 0.25
    assert difference([1.0]) == 0
    for value in (float("nan"), float("inf"), -float("inf")):
        assert difference([1.0, value]) == difference([value, value]) == float("inf")
