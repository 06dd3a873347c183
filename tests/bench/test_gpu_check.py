"""tools/gpu_check.py: its options, its exit codes, and a part of a dry run."""

import json

import pytest

from tests.helpers.paths import ROOT
from zoo.bench.commands import gpu_check
from zoo.bench.gpu_checks import execution, tables


def run(capsys, *words):
    code = gpu_check.main([*map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_list_runs_nothing(capsys, tmp_path):
    pytest.importorskip("torch")
    code, out, _ = run(capsys, "--out", tmp_path / "out", "--dry", "--list", "--only", "speed,doctor")
    names = [line.split()[0] for line in out.splitlines()]
    assert code == 0 and names[0] == "doctor" and "speed-tsm-torch-amp" in names and not (tmp_path / "out").exists()
    assert all(name == "doctor" or name.startswith("speed") for name in names)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--only", "speeed"], "speeed"),
        (["--frameworks", "jax"], "jax"),
        (["--budget", "-1"], "--budget"),
        (["--page", "none.md", "--budget", "0"], "none.md"),
    ],
)
def test_a_mistake_is_one_message(capsys, tmp_path, words, message):
    pytest.importorskip("torch")
    code, _, err = run(capsys, "--out", tmp_path / "out", "--dry", *words)
    assert code == 2 and message in err and err.count("\n") == 1


def test_a_framework_that_is_not_installed_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check.models, "is_installed", lambda name: name == "mindspore")
    assert "torch is not installed" in run(capsys, "--out", tmp_path, "--dry", "--frameworks", "torch")[2]
    monkeypatch.setattr(gpu_check.models, "is_installed", lambda name: False)
    assert "no framework is installed" in run(capsys, "--out", tmp_path, "--dry")[2]


def test_the_exit_code_tells_failures_and_a_budget_that_ended(capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    out = tmp_path / "out"
    assert run(capsys, "--out", out, "--dry", "--only", "doctor", "--budget", 0)[0] == gpu_check.OVER
    failed = {"state": "failed", "reason": "no driver", "facts": {}, "seconds": 1.0}
    monkeypatch.setattr(execution, "run", lambda *_: failed)
    code, text, _ = run(capsys, "--out", out, "--dry", "--only", "doctor")
    assert code == 1 and "- doctor: no driver" in text and "no driver" in (out / "report.md").read_text()
    done = {"state": "done", "values": {"findings": []}, "facts": {}, "seconds": 1.0}
    monkeypatch.setattr(execution, "run", lambda *_: done)
    assert run(capsys, "--out", out, "--dry", "--only", "doctor")[0] == 1  # not repeated
    assert run(capsys, "--out", out, "--dry", "--only", "doctor", "--retry")[0] == 0


def test_the_page_of_the_documentation_has_the_marks():
    text = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert text.count(tables.BEGIN) == text.count(tables.END) == 1


@pytest.mark.slow
def test_a_part_of_a_dry_run(capsys, tmp_path):
    pytest.importorskip("torch")
    out, page = tmp_path / "out", tmp_path / "page.md"
    page.write_text(f"{tables.BEGIN}\n{tables.END}\n")
    steps = ["parity-resnet-torch-tiny", "speed-resnet-torch-tf32", "demos-resnet-torch-amp", "profile-resnet"]
    steps += ["compare-resnet", "resume-torch", "deterministic-resnet-torch", "together-torch"]
    code, text, err = run(capsys, "--out", out, "--dry", "--only", ",".join(steps), "--page", page)
    assert code == 0, text + err
    found = {name: json.loads((out / f"results/{name}.json").read_text()) for name in steps}
    assert {result["state"] for result in found.values()} == {"done"}
    assert found["parity-resnet-torch-tiny"]["values"]["beyond"] == []
    speed = found["speed-resnet-torch-tf32"]["values"]
    assert speed["samples_per_s"] > 0 and speed["settings"]["torch.backends.cudnn.allow_tf32"] is True
    assert found["compare-resnet"]["values"]["agree"] and found["resume-torch"]["values"]["equal_weights"]
    deterministic = found["deterministic-resnet-torch"]["values"]
    assert deterministic["equal_losses"] and deterministic["equal_weights"] and deterministic["steps"] == 12
    assert len(found["together-torch"]["values"]["together"]) == 2
    assert "| resnet | torch | TF32 | synthetic | 4 |" in page.read_text()
    code, again, _ = run(capsys, "--out", out, "--dry", "--only", ",".join(steps))
    assert code == 0 and again in text  # the tables alone: nothing is repeated
