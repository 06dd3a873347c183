"""compare.py as a user runs it, and its measure of difference."""

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
from tools import compare

COMPARE = os.path.join(ROOT, "tools/compare.py")


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
    """A comparison of one framework with nothing: where it ran, and what it said."""
    folder = tmp_path_factory.mktemp("alone")
    done = run(command(clips, "--frameworks", "torch", "--steps", 3), folder)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_one_framework_alone(alone):
    folder, out = alone
    assert "only one framework: nothing to compare it with" in out
    made = folder / "runs/compare-tsm_demo"
    assert sorted(os.listdir(made)) == ["curves.png", "torch-step1.safetensors", "torch.jsonl", "torch.log"]
    assert (made / "curves.png").read_bytes().startswith(b"\x89PNG\r\n")
    head, *rows = [json.loads(line) for line in open(made / "torch.jsonl")]
    assert (head["framework"], head["compute"], head["global_batch"]) == ("torch", "fp32", 4)
    assert [row["step"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert f"{row['step']:4}{row['loss']:11.6f}{0:12.1e}" in out


@pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="mindspore is not installed")
def test_two_frameworks_agree(clips, alone):
    """In a folder of their own: none is ever used twice."""
    folder, _ = alone
    done = run(command(clips, "--frameworks", "torch,mindspore", "--steps", 3), folder)
    assert done.returncode == 0, done.stderr + done.stdout
    made = folder / "runs/compare-tsm_demo-2"
    assert {"curves.png", "torch.jsonl", "mindspore.jsonl", "mindspore-step1.safetensors"} <= set(os.listdir(made))
    assert "they agree within 0.001" in done.stdout and "over the first 3 steps" in done.stdout
    assert "after one update, gradients that differ most:" in done.stdout and "mindspore: fp32 on cpu" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line[:4].strip().isdigit()]
    assert len(rows) == 3 and all(len(row) == 7 and float(row[3]) < 1e-3 for row in rows)


@pytest.mark.parametrize(
    "change, code, said",
    [
        (lambda row: row, 0, "they agree within"),
        (lambda row: {**row, "loss": row["loss"] * 1.01} if row["step"] == 2 else row, 1, "from step 2 on"),
        (lambda row: {**row, "loss": float("nan")} if row["step"] == 3 else row, 1, "from step 3 on"),
        (
            lambda row: {**row, "batch": 1} if row["step"] == 1 else row,
            2,
            "step 1: the frameworks were given different",
        ),
        (lambda row: {"step": 1}, 2, "cannot be read as numbers of an earlier comparison"),
    ],
)
def test_against_an_earlier_comparison(alone, change, code, said, tmp_path, capsys):
    """Judged in this process, from what a real one left; the framework itself is not run again."""
    source = alone[0] / "runs/compare-tsm_demo"
    shutil.copytree(source, tmp_path / "old")
    head, *rows = [json.loads(line) for line in open(source / "torch.jsonl")]
    (tmp_path / "old/torch.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [head, *map(change, rows)]))

    def copied(framework, arguments, folder):
        for name in os.listdir(source):
            if name.startswith(framework):
                shutil.copy(source / name, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "run", copied)
        found = compare.main(
            [
                "-c",
                DEMO,
                "--frameworks",
                "torch",
                "--steps",
                "3",
                "--against",
                str(tmp_path / "old"),
                "--out",
                str(tmp_path / "new"),
            ]
        )
    out, err = capsys.readouterr()
    assert found == code and said in (err if code == 2 else out)
    assert ("torch (old)" in out) == (found != 2 or "different" in said)


def test_another_seed_is_no_comparison(clips, alone):
    done = run(
        command(
            clips, "--frameworks", "torch", "--steps", 1, "--against", "runs/compare-tsm_demo", "--out", "other", seed=2
        ),
        alone[0],
    )
    assert done.returncode == 2 and "different batches" in done.stderr and "same seed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words, said",
    [
        (["--frameworks", "torch,jax"], "there is no 'jax'; there are: torch, paddle, mindspore"),
        (["--frameworks", "torch", "--steps", "0"], "must be at least 1"),
        (["--frameworks", "torch", "--out", "{here}"], "exists already and is not overwritten"),
        (["--frameworks", "torch", "--against", "{here}/nowhere"], "nowhere"),
        (["--frameworks", "torch", "-o", "model.shift_place=nome"], "did you mean none?"),
    ],
)
def test_mistakes_end_in_one_message(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run", lambda *arguments: pytest.fail("nothing is run"))
    assert compare.main(["-c", DEMO, *(word.format(here=tmp_path) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert said in err and err.startswith("error: ") and not os.path.exists("runs")


def test_a_framework_that_fails_shows_its_last_words(clips, tmp_path):
    done = run(command(clips, "--frameworks", "torch", "--steps", 1, "--device", "cuda:99", device="cuda:99"), tmp_path)
    assert done.returncode == 2 and "torch ended with code 2" in done.stderr and "there is no cuda:99" in done.stderr


def test_another_net_is_no_comparison(tmp_path):
    for name, shape in (("a", (2, 3)), ("b", (3, 3))):
        compare.files.write(str(tmp_path / f"{name}-step1.safetensors"), {"fc.weight": np.zeros(shape, np.float32)})
    with pytest.raises(UserError, match="do not train the same tensors"):
        compare.tensors([(name, str(tmp_path / name)) for name in ("a", "b")], 1e-3)


@pytest.mark.parametrize(
    "key, change, found",
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
def test_what_differs_too_much_after_an_update(key, change, found, tmp_path):
    """One number of one tensor is another one; numbers that are rounding are not judged by themselves."""
    tensors = {
        "fc.weight": np.ones((4, 5), np.float32),
        "bn.running_mean": np.full(3, 2.5e-8, np.float32),
        "momentum/fc.weight": np.ones((4, 5), np.float32),
        "momentum/bn.bias": np.full(3, 1e-8, np.float32),
        "evaluation/output": np.full((2, 3), 1e-6, np.float32),
    }
    for name, more in (("a", 0.0), ("b", change)):
        array = tensors[key].copy()
        array.flat[0] += more
        compare.files.write(str(tmp_path / f"{name}-step1.safetensors"), {**tensors, key: array})
    problems = compare.tensors([(name, str(tmp_path / name)) for name in ("a", "b")], 1e-3)
    assert problems == ([f"after one update, {found}"] if found else [])


def test_difference():
    assert compare.difference([2.0, 2.0, 2.0]) == 0 == compare.difference([0.0, 0.0])
    assert compare.difference([1.0, 2.0]) == compare.difference([2.0, 1.0]) == 0.5
    assert compare.difference([-1.0, 1.0]) == 2.0 and compare.difference([-4.0, -3.0]) == 0.25
    assert compare.difference([1.0]) == 0
    for odd in (float("nan"), float("inf"), -float("inf")):
        assert compare.difference([1.0, odd]) == compare.difference([odd, odd]) == float("inf")
