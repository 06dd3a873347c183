"""The kill comes after a checkpoint; a run without one is an error; the verdict."""

import json
import sys

import pytest

from zoo.bench.gpu_checks import models, resume
from zoo.data.errors import UserError

SAVES = """
import json, os, sys, time
folder = sys.argv[1]
os.makedirs(f"{folder}/checkpoints/last")
with open(f"{folder}/events.jsonl", "w") as file:
    file.write(json.dumps({"event": "train", "step": 3, "loss": 1.5}) + "\\n")
    file.flush()
    time.sleep(60)
"""


def test_a_run_is_killed_once_it_has_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "losses", lambda folder: {1: 2.0, 3: 1.5})
    assert resume.kill_after_a_checkpoint([sys.executable, "-c", SAVES, str(tmp_path / "run")], tmp_path / "run") == 3


@pytest.mark.parametrize(
    "program, message", [("pass", "no checkpoint"), ("import time; time.sleep(9)", "no checkpoint")]
)
def test_a_run_without_a_checkpoint_is_an_error(tmp_path, monkeypatch, program, message):
    monkeypatch.setattr(resume, "WAIT", 0.5)
    with pytest.raises(UserError, match=message):
        resume.kill_after_a_checkpoint([sys.executable, "-c", program], tmp_path / "run")


def test_the_largest_difference_of_a_loss():
    assert resume.largest_difference({1: 2.0, 2: 4.1}, {1: 2.0, 2: 4.0}) == pytest.approx(0.025)
    assert resume.largest_difference({1: float("nan")}, {1: 2.0}) == float("inf")


@pytest.mark.parametrize("difference, code", [(0.0, 0), (1e-3, 0), (2e-3, 1), (float("inf"), 1)])
def test_the_exit_code(tmp_path, monkeypatch, difference, code):
    monkeypatch.setattr(resume, "check", lambda folder, options: {"largest_difference": difference})
    assert resume.main(["--folder", str(tmp_path), "--json", str(tmp_path / "values.json")]) == code


@pytest.mark.slow
def test_a_resumed_run_on_a_cpu_has_equal_losses_and_weights(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "values.json"
    options = [*models.tiny(models.MODELS[0], "torch"), "--device", "cpu"]
    assert resume.main(["--folder", str(tmp_path / "runs"), "--json", str(path), *options]) == 0
    values = json.loads(path.read_text())
    assert values["equal_losses"] and values["equal_weights"] and values["largest_difference"] == 0
    assert values["steps"] == 12 and 3 <= values["killed_after_step"] <= 12
