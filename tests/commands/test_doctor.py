"""The command: exit codes, wrong usage, and machines that are broken in ways of ours."""

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
from zoo.doctor import framework, nvidia, update
from zoo.doctor import machine as machine_module
from zoo.doctor.framework import Result, Start
from zoo.doctor.nvidia import Driver
from zoo.doctor.report import Finding

CRASH = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


@pytest.fixture
def machine(monkeypatch):
    """A machine without troubles of its own; returns a function that sets what each framework starts on."""

    def set_up(starts, update_state="ok", blocked=False, gpus=0):
        finding = Finding("machine", "disk", "FAIL" if blocked else "ok", "a disk")
        for name in ("examine_network", "examine_launchers"):
            monkeypatch.setattr(machine_module, name, list)
        monkeypatch.setattr(machine_module, "examine_host", lambda described: [finding])
        monkeypatch.setattr(machine_module, "examine_decoders", lambda seconds: [])
        monkeypatch.setattr(machine_module, "dali_build", lambda: None)
        monkeypatch.setattr(nvidia, "examine", lambda seconds, version: (Driver(devices=({},) * gpus), []))

        def start(name, device, seconds, nvidia):
            return Result([Start(name, *rest) for rest in starts.get(name, ())], [])

        calls = []

        def compute(name, device, precision, seconds, reference):
            calls.append((name, device, precision, reference and reference.name))
            state = "FAIL" if device == update_state else update_state.replace("cuda:1", "ok")
            return Finding(name, "update", state, "an update"), {"tsm": None}

        monkeypatch.setattr(framework, "examine", start)
        monkeypatch.setattr(update, "examine", compute)
        return calls

    return set_up


CPU, GPU, BROKEN = ("cpu", "cpu", {}), ("auto", "cuda", {"fp32": "fp32", "amp": "fp16"}), ("auto", None, {})


def test_what_is_compared_with_what(machine, capsys):
    calls = machine({"torch": [GPU, CPU], "paddle": [("auto", "cpu", {})]})
    assert call_zoo("doctor") == 0
    assert calls == [
        ("torch", "cpu", "fp32", None),
        ("torch", "cuda", "fp32", "torch on the CPU"),
        ("torch", "cuda", "fp16", "torch on the CPU"),
        ("paddle", "cpu", "fp32", "torch on the CPU"),
    ]
    assert capsys.readouterr().out.endswith("training can start: torch on cpu, torch on cuda, paddle on cpu\n")


def test_each_gpu_is_tried(machine, capsys):
    calls = machine({"torch": [GPU, CPU]}, update_state="cuda:1", gpus=3)
    assert call_zoo("doctor") == 0
    assert [call[1:3] for call in calls] == [
        ("cpu", "fp32"),
        ("cuda", "fp32"),
        ("cuda", "fp16"),
        ("cuda:1", "fp32"),
        ("cuda:2", "fp32"),
    ]
    assert capsys.readouterr().out.endswith("training can start: torch on cpu, torch on cuda, torch on cuda:2\n")
    machine({"torch": [("cuda:1", "cuda", {}), CPU]}, gpus=3)
    assert call_zoo("doctor", "--device", "cuda:1") == 0
    assert capsys.readouterr().out.endswith("training can start: torch on cuda:1\n")


@pytest.mark.parametrize(
    "starts, arguments, code",
    [
        ({"torch": [("auto", "cpu", {})]}, [], 0),
        ({"torch": [BROKEN, CPU]}, [], 0),  # with --device cpu
        ({"torch": [BROKEN]}, [], 1),
        ({}, [], 1),
        ({"torch": [("cuda", None, {}), CPU]}, ["--device", "cuda"], 1),
        ({"torch": [("cuda:1", "cuda", {}), CPU]}, ["--device", "cuda:1"], 0),
        ({"torch": [CPU]}, ["--framework", "paddle"], 1),
    ],
)
def test_exit_codes(machine, capsys, starts, arguments, code):
    machine(starts)
    assert call_zoo("doctor", *arguments, "--quick") == code
    assert ("training can start" in capsys.readouterr().out) == (code == 0)


def test_nothing_starts_on_a_full_disk(machine, capsys):
    machine({"torch": [CPU]}, blocked=True)
    assert call_zoo("doctor", "--quick") == 1
    assert capsys.readouterr().out.endswith("training cannot start\n")


def test_a_wrong_update_is_no_training(machine):
    machine({"torch": [CPU]}, update_state="FAIL")
    assert call_zoo("doctor") == 1
    assert call_zoo("doctor", "--quick") == 0


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
