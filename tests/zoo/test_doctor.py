"""The diagnosis: processes that crash or hang, the machine, frameworks and their devices, updates that differ."""

import json
import os
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from zoo.data import extras
from zoo.doctor import framework, machine, update
from zoo.doctor.child import Answer, Finding, ask
from zoo.doctor.framework import Start
from zoo.doctor.machine import Driver
from zoo.doctor.update import CASES, Reference
from zoo.models import load_spec
from zoo.tasks import VARIANTS, list_tasks


@pytest.fixture
def fake_module(tmp_path, monkeypatch):
    """Return a function that makes a Python module for child processes."""

    def make(name, code):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return make


CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"


@pytest.fixture
def import_of(fake_module):
    """Return a function that imports a module with some code in a child."""

    def run(code, seconds=60.0):
        fake_module("subject", code)
        return ask(seconds, "module", "subject")

    return run


@pytest.mark.parametrize(
    "code, failure",
    [
        (CRASH, "crashed with SIGSEGV while importing subject"),
        (
            "import os; print('goodbye', flush=True); os._exit(3)",
            "exit code 3 and without an answer, after ['goodbye']",
        ),
        ("raise RuntimeError('one thing\\nand its traceback')", "RuntimeError: one thing"),
        ("import a_module_that_is_missing", "No module named 'a_module_that_is_missing'"),
    ],
)
def test_a_module_that_fails(import_of, code, failure):
    assert failure in import_of(code).failure


def test_what_hangs_is_killed_with_its_children(import_of, tmp_path):
    """The end of a pipe that a grandchild holds is read: it comes once the grandchild is gone."""
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    start = time.monotonic()
    answer = import_of(
        "import subprocess, time\n"
        f"subprocess.Popen(['sleep', '300'], stdout=open({str(tmp_path / 'alive')!r}, 'wb'))\n"
        "print('started', flush=True)\n"
        "time.sleep(300)",
        seconds=1.0,
    )
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"" and time.monotonic() - start < 30
    os.close(reader)
    assert answer.failure == "did not end within 1 s while importing subject"


Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def free(monkeypatch):
    """Return a function that sets the free bytes of every file system."""
    return lambda size: monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(1e12, 1e12 - size, size))


@pytest.mark.parametrize("size, state", [(3e6, "FAIL"), (2e9, "warn"), (50e9, "ok")])
def test_a_full_disk_prevents_training(free, tmp_path, size, state):
    free(size)
    finding = machine.disk(tmp_path)
    assert finding.state == state and str(tmp_path) in finding.text and bool(finding.remedy) == (state != "ok")


def test_decoders(fake_module, monkeypatch):
    fake_module("broken_decoder", "import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    fake_module("good_decoder", "__version__ = '3.1'\n")
    decoders = {"good_decoder": "images", "broken_decoder": "videos", "absent_decoder": "sounds"}
    monkeypatch.setattr(machine, "DECODERS", decoders)
    monkeypatch.setitem(extras.EXTRAS, "absent_decoder", "data")
    good, broken, absent = machine.examine_decoders(60.0)
    assert (good.state, good.text) == ("ok", "good_decoder 3.1")
    assert (broken.topic, broken.state) == ("broken_decoder", "warn")
    assert broken.text == "videos: crashed with SIGABRT while importing broken_decoder"
    assert broken.remedy == "reinstall it: pip install --force-reinstall --no-deps broken_decoder"
    assert (absent.state, absent.text) == ("-", f"absent_decoder (sounds): {extras.install_command('data')}")


SMI = """\
==============NVSMI LOG==============
Driver Version                            : 570.86
CUDA Version                              : 12.8
GPU 00000000:01:00.0
    Product Name                          : Fake GPU 80GB
    FB Memory Usage
        Total                             : 81559 MiB
"""


@pytest.mark.parametrize(
    "vendor, smi, driver, state, text",
    [
        ("0x8086", None, Driver(), "-", "no GPU on the PCI bus"),
        ("0x10de", None, Driver(True), "warn", "there is a GPU, but no nvidia-smi"),
        (
            "0x10de",
            f"cat <<E\n{SMI}E",
            Driver(True, (12, 8), ("Fake GPU 80GB",)),
            "ok",
            "driver 570.86, for CUDA up to 12.8",
        ),
        (
            "0x10de",
            "cat <<E\n" + SMI.replace("12.8", "Not Found") + "E",
            Driver(True, None, ("Fake GPU 80GB",)),
            "ok",
            "driver 570.86; nvidia-smi does not say for which CUDA",
        ),
        ("0x10de", "echo Driver/library version mismatch; exit 18", Driver(True), "warn", "version mismatch"),
        ("0x10de", "exec sleep 60", Driver(True), "warn", "timed out after 2.0 seconds"),
    ],
)
def test_the_driver(tmp_path, monkeypatch, vendor, smi, driver, state, text):
    folder = tmp_path / "bus/pci/devices/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text("0x030000\n")
    monkeypatch.setattr(machine, "SYS", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if smi else str(tmp_path))
    if smi:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    found, lines = machine.examine_driver(2.0)
    assert found == driver and lines[0].state == state and text in lines[0].text
    assert [line.text for line in lines[1:]] == list(driver.devices)


GPU = "Fake GPU"
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


def test_a_gpu_is_compared_with_the_cpu(start):
    lines, starts = start({"auto": ON_GPU, "cpu": ON_CPU}, WITH_GPU)
    assert lines[0][2] == "2.13.0, for CUDA 13.0, cuDNN 9.20.0, NCCL 2.29.7 and for CPUs"
    assert lines[1] == ("cuda:0", "ok", "Fake GPU: fp32, fp64, fp16, bf16; --amp is fp16", "")
    assert [(begun.kind, begun.name) for begun in starts] == [("cuda", "cuda"), ("cpu", "cpu")]


def test_a_failure_at_import_is_one_line(start):
    answer = Answer({"stage": "importing torch", "installed": "2.13.0"}, "crashed with SIGSEGV")
    [line], [begun] = start({"auto": answer})
    assert line[1:3] == ("FAIL", "torch 2.13.0: crashed with SIGSEGV") and begun.kind is None


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


@pytest.fixture
def diagnose(monkeypatch, capsys):
    """Return a function that runs the command where frameworks start on given devices; the calls of updates."""

    def run(starts, *words, failing=None, blocked=False, gpus=0):
        calls = []
        disk = Finding("machine", "disk", "FAIL" if blocked else "ok", "a disk")
        monkeypatch.setattr(machine, "examine_host", lambda described: [disk])
        monkeypatch.setattr(machine, "examine_launchers", list)
        monkeypatch.setattr(machine, "examine_decoders", lambda seconds: [])
        monkeypatch.setattr(machine, "examine_driver", lambda seconds: (Driver(devices=(GPU,) * gpus), []))

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
        ({"torch": [("cuda", None, {}), CPU]}, "--device cuda", {}, "training cannot start on cuda"),
        ({"torch": [("cuda:1", "cuda", {}), CPU]}, "--device cuda:1", {}, "training can start: torch on cuda:1"),
        ({"torch": [CPU]}, "--framework paddle", {}, "training cannot start with paddle"),
        ({"torch": [CPU]}, "--quick", {"blocked": True}, "training cannot start"),
        ({"torch": [CPU]}, "", {"failing": "cpu"}, "training cannot start"),
    ],
)
def test_verdicts(diagnose, starts, words, options, verdict):
    code, _, line = diagnose(starts, *words.split(), **options)
    assert line == verdict and code == ("cannot" in verdict)


NUMBERS = {"loss": 2.0, "grad_norm": 1.0, "skipped": 0.0}


@pytest.fixture
def examine(monkeypatch):
    """Return a function that examines updates of one weight from 1 to `after`, by model."""

    def run(after, reference=None, failure=None, precision="fp32", numbers=NUMBERS):
        def ask(seconds, probe, framework, device, asked, folder):
            assert (probe, asked) == ("update", precision)
            for model, value in after.items():
                arrays = {"before/a.weight": np.ones(1), "after/a.weight": np.array([value])}
                np.savez(Path(folder, f"{model}.npz"), **arrays)
            return Answer({**dict.fromkeys(after, numbers), "stage": "updating resnet"}, failure)

        monkeypatch.setattr(update.child, "ask", ask)
        return update.examine("paddle", "cuda", precision, 60.0, reference)

    return run


# With its initial weights, normalizations enlarge rounding errors: first updates differ by 1 % between frameworks.
NOT_COMPARABLE = {"tsm_mobilenet_v2"}


def test_the_cases_are_a_model_of_every_task():
    models = {path.parent.name for path in (ROOT / "zoo/models").glob("*/spec.py")}
    assert set(CASES) <= models - NOT_COMPARABLE
    assert {load_spec(model).TASK for model in CASES} == set(list_tasks()) - set(VARIANTS)


def test_updates_that_agree(examine):
    _, expected = examine(dict.fromkeys(CASES, 0.9))
    finding, sound = examine(dict.fromkeys(CASES, 0.90001), Reference("torch on the CPU", expected))
    assert finding.state == "ok" and list(sound) == list(CASES)
    assert finding.text == (
        "tsm, resnet, deeplabv3plus, arcface on cuda: as torch on the CPU, losses within 0e+00, updates within 1e-04"
    )


def test_an_update_that_differs_is_named(examine):
    _, expected = examine(dict.fromkeys(CASES, 0.9))
    finding, sound = examine({**dict.fromkeys(CASES, 0.9), "resnet": 0.899}, Reference("torch on the CPU", expected))
    assert finding.state == "FAIL" and "resnet" not in sound
    words = "on cuda: resnet: differs from torch on the CPU by 0e+00 in its loss and by 1e-02 in its update"
    assert finding.text == words and "--framework paddle --device cuda" in finding.remedy
    finding, _ = examine({"resnet": 0.899}, Reference("paddle on the CPU", expected), precision="fp16")
    assert finding.state == "ok"  # within the rounding of 16 bits


@pytest.mark.slow
def test_pytorch_computes_on_a_cpu():
    pytest.importorskip("torch")
    finding, first = update.examine("torch", "cpu", "fp32", 600.0, None)
    assert finding.state == "ok" and finding.text == "tsm, resnet, deeplabv3plus, arcface on cpu"
    first["tsm"].after["fc.bias"][:] += 1  # a wrong reference is noticed
    finding, sound = update.examine("torch", "cpu", "bf16", 600.0, Reference("fp32", first))
    assert finding.state == "FAIL" and finding.text.startswith("on cpu: tsm: differs from fp32")
    assert list(sound) == ["resnet", "deeplabv3plus", "arcface"]


CRASHING = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"


def run_doctor(*words, **variables):
    environment = {**os.environ, **variables}
    command = [sys.executable, "-m", "zoo", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=600, check=False)


@pytest.mark.slow
def test_a_framework_that_crashes_when_it_is_imported(tmp_path):
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle/__init__.py").write_text(CRASHING)
    done = run_doctor("--framework", "paddle", "--quick", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (done.returncode, done.stderr) == (1, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any("FAIL" in line and "crashed with SIGKILL while importing paddle" in line for line in lines)
    assert lines[-1] == "training cannot start with paddle" and max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.slow
def test_pytorch_on_a_cpu(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "a.json"
    done = run_doctor("--framework", "torch", "--device", "cpu", "--json", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("training can start: torch on cpu\n")
    assert max(map(len, done.stdout.splitlines())) <= 100
    report = json.loads(path.read_text())
    assert report["usable"] == [["torch", "cpu"]]
    states = {(finding["section"], finding["topic"]): finding["state"] for finding in report["findings"]}
    assert states["torch", "cpu"] == states["torch", "update in fp32"] == "ok"
