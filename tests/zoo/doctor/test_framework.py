"""Frameworks that cannot be imported or do not see the GPU, and what is compared with what; all answers are made up."""

import pytest

from tests.helpers.cli import call_zoo
from zoo.doctor import framework, machine, nvidia, update
from zoo.doctor.child import Answer
from zoo.doctor.framework import Start
from zoo.doctor.nvidia import Driver
from zoo.doctor.report import Finding

GPU = {"name": "Fake GPU", "memory": 8e10, "capability": [8, 0]}
NO_GPU, WITH_GPU = Driver(), Driver(True, (13, 0), (GPU,))
ON_CPU = {
    "stage": "choosing precisions",
    "installed": "2.13.0+cpu",
    "version": "2.13.0",
    "libraries": {"cuda": None, "cudnn": None, "nccl": None},
    "device": "cpu (2 threads)",
    "kind": "cpu",
    "modes": {"fp32": "fp32", "fp64": "fp64", "bf16": "bf16", "amp": "bf16"},
    "done": True,
}
ON_GPU = {
    **ON_CPU,
    "installed": "2.13.0",
    "libraries": {"cuda": "13.0", "cudnn": "9.20.0", "nccl": "2.29.7"},
    "device": "cuda:0 (Fake GPU)",
    "kind": "cuda",
    "modes": {"fp32": "fp32", "fp64": "fp64", "fp16": "fp16", "bf16": "bf16", "amp": "fp16"},
}
UNSEEN = {**ON_GPU, "device": "cpu (2 threads)", "kind": "cpu"}  # a build for GPUs that has started on the CPU


@pytest.fixture
def start(monkeypatch):
    """Return a function that starts torch with made-up answers by device, and returns its lines and starts."""
    monkeypatch.setattr(framework.importlib.util, "find_spec", lambda name: object())

    def run(answers, driver=NO_GPU, device=None):
        made = {name: answer if isinstance(answer, Answer) else Answer(answer) for name, answer in answers.items()}
        monkeypatch.setattr(framework.child, "ask", lambda seconds, probe, name, device: made[device])
        starts, lines = framework.start("torch", device, 60.0, driver)
        return [(line.topic, line.state, line.text, line.remedy) for line in lines], starts

    return run


def test_a_machine_without_gpu(start):
    lines, [begun] = start({"auto": ON_CPU})
    assert lines == [
        ("version", "ok", "2.13.0+cpu, a build without CUDA", ""),
        ("cpu", "ok", "2 threads: fp32, fp64, bf16; no fp16; --amp is bf16", ""),
    ]
    assert (begun.kind, begun.name) == ("cpu", "cpu")


def test_a_gpu_is_compared_with_the_cpu(start):
    lines, starts = start({"auto": ON_GPU, "cpu": ON_CPU}, WITH_GPU)
    assert lines[0][2] == "2.13.0, for CUDA 13.0, cuDNN 9.20.0, NCCL 2.29.7 and for CPUs"
    assert lines[1] == ("cuda:0", "ok", "Fake GPU: fp32, fp64, fp16, bf16; --amp is fp16; TF32", "")
    assert [(begun.kind, begun.name) for begun in starts] == [("cuda", "cuda"), ("cpu", "cpu")]


@pytest.mark.parametrize(
    "failure, text, remedy",
    [
        ("crashed with SIGSEGV", "torch 2.13.0: crashed with SIGSEGV", "python -c 'import torch'"),
        (
            "libcublas.so.13: cannot open shared object file: No such file or directory",
            "torch 2.13.0 lacks the library libcublas.so.13",
            "reinstall",
        ),
    ],
)
def test_a_failure_at_import_is_one_line(start, failure, text, remedy):
    [line], [begun] = start({"auto": Answer({"stage": "importing torch", "installed": "2.13.0"}, failure)})
    assert line[1:3] == ("FAIL", text) and remedy in line[3] and begun.kind is None


@pytest.mark.parametrize(
    "answer, driver, topic, text, remedy",
    [
        (UNSEEN, Driver(True, (12, 4), (GPU,)), "version", "it is built for CUDA 13.0", "580.65.06"),
        (ON_CPU, WITH_GPU, "version", "without CUDA, but there is an NVIDIA GPU", "make setup-gpu FRAMEWORK=torch"),
        (UNSEEN, WITH_GPU, "cuda", "torch does not see the GPU", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_why_a_gpu_is_not_used(start, answer, driver, topic, text, remedy):
    lines, _ = start({"auto": answer}, driver)
    [line] = [line for line in lines if line[1] != "ok"]
    assert line[:2] == (topic, "warn") and text in line[2] and remedy in line[3]


def test_devices_that_do_not_start(start):
    """A framework says that it has GPUs, then fails to count them; one is asked for that is not here."""
    failed = Answer({"stage": "starting on auto", "installed": "2.8.0"}, "RuntimeError: cudaGetDeviceCount failed")
    lines, starts = start({"auto": failed, "cpu": ON_CPU})
    assert lines[1][:3] == ("default device", "FAIL", "RuntimeError: cudaGetDeviceCount failed")
    assert "--device cpu" in lines[1][3] and "driver" in lines[1][3]
    assert [(begun.name, begun.kind) for begun in starts] == [("auto", None), ("cpu", "cpu")]

    failed = Answer({"stage": "starting on cuda:3", "installed": "2.13.0"}, "device: there is no cuda:3 here")
    lines, starts = start({"cuda:3": failed, "cpu": ON_CPU}, device="cuda:3")
    assert lines[0][1] == "warn" and "which --device asks for" in lines[0][2]
    assert lines[1][:3] == ("cuda:3", "FAIL", "device: there is no cuda:3 here")
    assert [begun.kind for begun in starts] == [None, "cpu"]


def test_a_framework_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(framework.importlib.util, "find_spec", lambda name: None)
    starts, [line] = framework.start("paddle", None, 60.0, NO_GPU)
    assert (starts, line.state, line.remedy) == ([], "-", "pip install 'vision-zoo[paddle]'")


@pytest.fixture
def diagnose(monkeypatch, capsys):
    """Return a function that runs the command where frameworks start on given devices; the calls of updates."""

    def run(starts, *words, failing=None, blocked=False, gpus=0):
        calls = []
        disk = Finding("machine", "disk", "FAIL" if blocked else "ok", "a disk")
        monkeypatch.setattr(machine, "examine_host", lambda described: [disk])
        monkeypatch.setattr(machine, "examine_launchers", list)
        monkeypatch.setattr(machine, "examine_decoders", lambda seconds: [])
        monkeypatch.setattr(nvidia, "examine", lambda seconds, version: (Driver(devices=({},) * gpus), []))

        def start(name, device, seconds, gpus):
            return [Start(name, *rest) for rest in starts.get(name, ())], []

        def compute(name, device, precision, seconds, reference):
            calls.append((name, device, precision, reference and reference.name))
            return Finding(name, "update", "FAIL" if device == failing else "ok", "an update"), {"tsm": None}

        monkeypatch.setattr(framework, "start", start)
        monkeypatch.setattr(update, "examine", compute)
        code = call_zoo("doctor", *words)
        return code, calls, capsys.readouterr().out.splitlines()[-1]

    return run


CPU, AUTO_CPU, AUTO_GPU = ("cpu", "cpu", {}), ("auto", "cpu", {}), ("auto", "cuda", {"fp32": "fp32", "amp": "fp16"})
BROKEN = ("auto", None, {})


def test_what_is_compared_with_what(diagnose):
    code, calls, verdict = diagnose({"torch": [AUTO_GPU, CPU], "paddle": [AUTO_CPU]})
    assert calls == [
        ("torch", "cpu", "fp32", None),
        ("torch", "cuda", "fp32", "torch on the CPU"),
        ("torch", "cuda", "fp16", "torch on the CPU"),
        ("paddle", "cpu", "fp32", "torch on the CPU"),
    ]
    assert (code, verdict) == (0, "training can start: torch on cpu, torch on cuda, paddle on cpu")


def test_each_gpu_is_tried(diagnose):
    _, calls, verdict = diagnose({"torch": [AUTO_GPU, CPU]}, failing="cuda:1", gpus=3)
    assert [call[1] for call in calls] == ["cpu", "cuda", "cuda", "cuda:1", "cuda:2"]
    assert verdict == "training can start: torch on cpu, torch on cuda, torch on cuda:2"


@pytest.mark.parametrize(
    "starts, words, options, verdict",
    [
        ({"torch": [AUTO_CPU]}, "--quick", {}, "training can start: torch on cpu"),
        ({"torch": [BROKEN, CPU]}, "--quick", {}, "training can start: torch on cpu"),  # with --device cpu
        ({"torch": [BROKEN]}, "--quick", {}, "training cannot start"),
        ({}, "", {}, "training cannot start"),
        ({"torch": [("cuda", None, {}), CPU]}, "--device cuda", {}, "training cannot start on cuda"),
        ({"torch": [("cuda:1", "cuda", {}), CPU]}, "--device cuda:1", {}, "training can start: torch on cuda:1"),
        ({"torch": [CPU]}, "--framework paddle", {}, "training cannot start with paddle"),
        ({"torch": [CPU]}, "--quick", {"blocked": True}, "training cannot start"),
        ({"torch": [CPU]}, "", {"failing": "cpu"}, "training cannot start"),
        ({"torch": [CPU]}, "--quick", {"failing": "cpu"}, "training can start: torch on cpu"),
    ],
)
def test_verdicts(diagnose, starts, words, options, verdict):
    code, _, line = diagnose(starts, *words.split(), **options)
    assert line == verdict and code == ("cannot" in verdict)
