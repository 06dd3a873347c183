"""The command: wrong usage, missing packages, and frameworks as they are; tests/zoo/doctor has the rest."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from zoo.commands import doctor

CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


def test_wrong_usage(capsys, tmp_path):
    for words in (["--device", "gpu"], ["--device", "cuda:"], ["--timeout", "0"], ["--timeout", "nan"]):
        assert call_zoo("doctor", *words) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {words[0]}") and error.count("\n") == 1
    (tmp_path / "there.json").touch()
    assert call_zoo("doctor", "--json", str(tmp_path / "there.json")) == 2
    assert "this file exists" in capsys.readouterr().err
    assert call_zoo("doctor", "--framework", "caffe") == 2


def test_missing_packages_end_the_diagnosis(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(doctor.REQUIRED, "a_module_that_is_missing", "a-package")
    assert call_zoo("doctor", "--json", str(tmp_path / "a.json")) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "machine",
        "  packages          FAIL not installed: a-package; pip install .",
        "training cannot start",
    ]
    assert json.loads((tmp_path / "a.json").read_text())["can_train"] is False


def test_required_packages_are_those_of_the_project():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert set(doctor.REQUIRED.values()) == {re.match(r"[\w-]+", dependency)[0] for dependency in dependencies}


def run(*words, **variables):
    environment = {**os.environ, **variables}
    command = [sys.executable, "-m", "zoo", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=600, check=False)


def test_a_framework_that_crashes_when_it_is_imported(tmp_path):
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle/__init__.py").write_text(CRASH)
    done = run("--framework", "paddle", "--quick", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (done.returncode, done.stderr) == (1, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any("FAIL" in line and "crashed with SIGSEGV while importing paddle" in line for line in lines)
    assert lines[-1] == "training cannot start with paddle" and max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.slow
def test_pytorch_on_a_cpu(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "a.json"
    done = run("--framework", "torch", "--device", "cpu", "--json", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("training can start: torch on cpu\n")
    assert max(map(len, done.stdout.splitlines())) <= 100
    report = json.loads(path.read_text())
    assert report["usable"] == [["torch", "cpu"]]
    states = {(finding["section"], finding["topic"]): finding["state"] for finding in report["findings"]}
    assert states["torch", "cpu"] == states["torch", "update in fp32"] == "ok"
