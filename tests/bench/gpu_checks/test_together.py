"""Speeds of runs at the same time, with programs that only write what a run writes."""

import json
from pathlib import Path

import pytest

from tests.helpers.speed_runs import write_speed_run
from zoo.bench.gpu_checks import together
from zoo.data.errors import UserError

SPEEDS = {"alone": 100.0, "first": 60.0, "second": 70.0}


class FakeRun:
    """Stands in for a process of train.py, which writes a journal."""

    failing: str | None = None

    def __init__(self, words):
        folder = Path(words[-1])
        self.name = folder.name
        write_speed_run(folder, SPEEDS[self.name])

    def wait(self):
        return int(self.name == self.failing)


def test_two_runs_are_compared_with_one(tmp_path, monkeypatch):
    monkeypatch.setattr(together.subprocess, "Popen", FakeRun)
    path = tmp_path / "values.json"
    assert together.main(["--folder", str(tmp_path), "--json", str(path), "-c", "x.yaml"]) == 0
    assert json.loads(path.read_text()) == {"alone": 100.0, "together": [60.0, 70.0], "gain": 1.3}


def test_a_run_that_fails_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(together.subprocess, "Popen", FakeRun)
    monkeypatch.setattr(FakeRun, "failing", "second")
    assert together.main(["--folder", str(tmp_path), "--json", str(tmp_path / "values.json")]) == 2
    assert "second: the run failed" in capsys.readouterr().err


def test_a_run_without_a_speed_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no event"):
        together.speed(tmp_path)
