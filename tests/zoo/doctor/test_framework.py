"""Frameworks that cannot be imported, that lack something or do not see the GPU; their answers are made up."""

import pytest

from zoo.doctor import framework
from zoo.doctor.child import Answer
from zoo.doctor.nvidia import Driver

SECONDS = 60.0
GPU = {"name": "Fake GPU", "memory": 8e10, "capability": [8, 0]}
NO_GPU = Driver()
WITH_GPU = Driver(True, (13, 0), (GPU,))
ON_CPU = {
    "stage": "choosing precisions",
    "installed": "2.13.0+cpu",
    "version": "2.13.0",
    "libraries": {"cuda": None, "cudnn": None, "nccl": None},
    "device": "cpu (2 threads)",
    "kind": "cpu",
    "modes": {"fp32": "fp32", "fp64": "fp64", "bf16": "bf16", "amp": "bf16"},
    "refused": {"fp16": "no"},
    "done": True,
}
ON_GPU = {
    **ON_CPU,
    "installed": "2.13.0",
    "libraries": {"cuda": "13.0", "cudnn": "9.20.0", "nccl": "2.29.7"},
    "device": "cuda:0 (Fake GPU)",
    "kind": "cuda",
    "modes": {"fp32": "fp32", "fp64": "fp64", "fp16": "fp16", "bf16": "bf16", "amp": "fp16"},
    "refused": {},
}


@pytest.fixture
def examine(monkeypatch):
    """Return a function that examines torch with made-up answers by device, and returns its lines and starts."""
    monkeypatch.setattr(framework.importlib.util, "find_spec", lambda name: object())

    def run(answers, driver=NO_GPU, device=None, missing=()):
        def ask(seconds, probe, *arguments):
            if probe == "libraries":
                return Answer({"missing": dict.fromkeys(missing, ""), "done": True})
            answer = answers[arguments[1]]
            return answer if isinstance(answer, Answer) else Answer(answer)

        monkeypatch.setattr(framework.child, "ask", ask)
        result = framework.examine("torch", device, SECONDS, driver)
        return [(line.topic, line.state, line.text, line.remedy) for line in result.findings], result.starts

    return run


def test_a_machine_without_gpu(examine):
    lines, [start] = examine({"auto": ON_CPU})
    assert lines == [
        ("version", "ok", "2.13.0+cpu, a build without CUDA", ""),
        ("cpu", "ok", "2 threads: fp32, fp64, bf16; no fp16; --amp is bf16", ""),
    ]
    assert (start.kind, start.name) == ("cpu", "cpu")


def test_a_gpu_is_compared_with_the_cpu(examine):
    lines, starts = examine({"auto": ON_GPU, "cpu": ON_CPU}, WITH_GPU)
    assert lines[0][2] == "2.13.0, for CUDA 13.0, cuDNN 9.20.0, NCCL 2.29.7 and for CPUs"
    assert lines[1][:2] == ("CUDA libraries", "ok")
    assert lines[2] == ("cuda:0", "ok", "Fake GPU: fp32, fp64, fp16, bf16; --amp is fp16; TF32", "")
    assert [(start.kind, start.name) for start in starts] == [("cuda", "cuda"), ("cpu", "cpu")]


def test_a_crash_at_import_is_one_line(examine):
    crash = Answer({"stage": "importing torch", "installed": "2.13.0"}, "crashed with SIGSEGV while importing torch")
    lines, [start] = examine({"auto": crash})
    [(_, state, text, remedy)] = lines
    assert state == "FAIL" and text == "torch 2.13.0: crashed with SIGSEGV while importing torch"
    assert "python -c 'import torch'" in remedy and start.kind is None


def test_a_library_that_the_import_misses_is_named(examine):
    words = "libcublas.so.13: cannot open shared object file: No such file or directory"
    [(_, state, text, remedy)], _ = examine(
        {"auto": Answer({"stage": "importing torch", "installed": "2.13.0"}, words)}
    )
    assert (state, text) == ("FAIL", "torch 2.13.0 lacks the library libcublas.so.13") and "reinstall" in remedy


def test_missing_libraries_of_a_gpu_machine(examine):
    lines, _ = examine(
        {"auto": {**ON_GPU, **{key: ON_CPU[key] for key in ("device", "kind")}}}, WITH_GPU, None, ["libcublas.so.13"]
    )
    assert lines[1][:3] == ("CUDA libraries", "warn", "missing: libcublas.so.13") and lines[1][3]
    assert [line[0] for line in lines] == ["version", "CUDA libraries", "cpu"]


def test_a_driver_that_is_too_old(examine):
    driver = Driver(True, (12, 4), (GPU,))
    lines, _ = examine({"auto": {**ON_GPU, "device": "cpu (2 threads)", "kind": "cpu"}}, driver)
    assert lines[1][:2] == ("driver", "warn")
    assert lines[1][2] == "it is built for CUDA 13.0, the driver runs CUDA up to 12.4"
    assert "580.65.06" in lines[1][3]


def test_a_cpu_build_on_a_gpu_machine(examine):
    lines, _ = examine({"auto": ON_CPU}, WITH_GPU)
    assert lines[0][:3] == ("version", "warn", "2.13.0+cpu, a build without CUDA, but there is an NVIDIA GPU")
    assert len(lines) == 2


def test_a_gpu_that_is_not_seen(examine):
    lines, _ = examine({"auto": {**ON_GPU, "device": "cpu (2 threads)", "kind": "cpu"}}, WITH_GPU)
    assert lines[-1] == (
        "cuda",
        "warn",
        "torch does not see the GPU",
        "look at CUDA_VISIBLE_DEVICES, and try --device cuda",
    )


def test_a_plugin_without_a_driver(examine):
    """The framework says that it has GPUs, then fails to count them."""
    failed = Answer({"stage": "starting on auto", "installed": "2.8.0"}, "RuntimeError: cudaGetDeviceCount failed")
    lines, starts = examine({"auto": failed, "cpu": ON_CPU})
    assert lines[1][:3] == ("default device", "FAIL", "RuntimeError: cudaGetDeviceCount failed")
    assert "--device cpu" in lines[1][3] and "driver" in lines[1][3]
    assert [(start.name, start.kind) for start in starts] == [("auto", None), ("cpu", "cpu")]


def test_a_device_that_is_not_here(examine):
    failed = Answer({"stage": "starting on cuda:3", "installed": "2.13.0"}, "device: there is no cuda:3 here")
    lines, starts = examine({"cuda:3": failed, "cpu": ON_CPU}, device="cuda:3")
    assert lines[0][1] == "warn" and "which --device asks for" in lines[0][2]
    assert lines[1][:3] == ("cuda:3", "FAIL", "device: there is no cuda:3 here")
    assert [start.kind for start in starts] == [None, "cpu"]


def test_a_framework_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(framework.importlib.util, "find_spec", lambda name: None)
    result = framework.examine("paddle", None, SECONDS, Driver())
    assert result.starts == [] and result.findings[0].state == "-"
    assert result.findings[0].remedy == "pip install 'vision-zoo[paddle]'"
