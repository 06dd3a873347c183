"""Processes of a run: their end, in whatever way it comes, and why they failed."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.helpers.paths import ROOT
from zoo.bench.matrix import process
from zoo.bench.matrix.cases import CHECKOUT, Case, Recipe, Variant, World
from zoo.bench.matrix.process import OUT_OF_MEMORY, StopSignal

# Starts a process that ignores SIGTERM and leaves its session, then sleeps; both have the mark in their command lines.
STUBBORN = """
import signal, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open(%r, 'w').close(); time.sleep(300)"
subprocess.Popen([sys.executable, "-c", code % sys.argv[1], sys.argv[1]], start_new_session=True)
time.sleep(300)
"""
PROGRAM = """
import sys
from pathlib import Path
from zoo.bench.matrix import process
stop = process.StopSignal()
try:
    process.run(sys.argv[2:], Path(sys.argv[1]), process.CHECKOUT, 300.0, stop)
except process.Stopped as stopped:
    sys.exit(128 + stopped.number)
"""


class NoStop(StopSignal):
    """No signal comes, and the handlers of pytest stay as they are."""

    def __init__(self):
        self.number = None


def run(tmp_path, code, *words, seconds=60.0, memory=None, stop=None):
    command = [sys.executable, "-c", code, *words]
    return process.run(command, tmp_path / "run.log", CHECKOUT, seconds, stop or NoStop(), memory)


def having(mark):
    """Return the processes with a word in their command line."""
    return [found for found in psutil.process_iter(["cmdline"]) if mark in (found.info["cmdline"] or [])]


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_run_that_ends_well(tmp_path):
    assert run(tmp_path, "print('hello')") is None
    assert (tmp_path / "run.log").read_text() == "hello\n"


@pytest.mark.parametrize(
    "code, reason",
    [
        ("import sys; print('error: optim.lr: wrong'); print('end'); sys.exit(2)", "optim.lr: wrong (exit code 2"),
        ("raise KeyError('x')", "KeyError: 'x' (exit code 1"),
        ("import os; os._exit(3)", "no output (exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "no output (exit code 139"),
        ("raise MemoryError", OUT_OF_MEMORY),
    ],
)
def test_why_a_run_has_failed(tmp_path, code, reason):
    assert run(tmp_path, code).startswith(reason)


@pytest.mark.parametrize(
    "line",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried to",
        "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 3.9GB memory on GPU 0",
        "RuntimeError: Device(id:0) memory isn't enough and alloc failed, kernel name: x",
        "RuntimeError: Allocate device memory failed!",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array",
        "OSError: [Errno 12] Cannot allocate memory",
    ],
)
def test_what_the_frameworks_print_when_memory_is_short(tmp_path, line):
    (tmp_path / "log").write_text(f"Traceback\n{line}\nlast line\n")
    assert process.reason_of(tmp_path / "log", 1) == OUT_OF_MEMORY


def test_a_process_that_the_kernel_kills_has_run_out_of_memory(tmp_path, monkeypatch):
    counts = iter((4, 5))
    monkeypatch.setattr(process, "_kernel_kills", lambda: next(counts))
    assert run(tmp_path, "import os; os.kill(os.getpid(), 9)") == OUT_OF_MEMORY
    counts = iter((4, 4))
    assert run(tmp_path, "import os; os.kill(os.getpid(), 9)").startswith("no output (exit code 137")


def test_the_limit_of_memory(tmp_path):
    code = (
        "import sys, time; held = bytearray(int(sys.argv[1])); held[::4096] = b'x' * len(held[::4096]); time.sleep(60)"
    )
    start = time.monotonic()
    assert run(tmp_path, code, str(300 << 20), memory=150 << 20) == OUT_OF_MEMORY
    assert run(tmp_path, code.replace("60", "0.5"), str(30 << 20), memory=150 << 20) is None
    assert time.monotonic() - start < 30


def test_the_limit_of_time_ends_all_processes(tmp_path):
    mark = str(tmp_path / "mark")
    assert run(tmp_path, STUBBORN, mark, seconds=1.0) == "did not end within 1 s"
    assert having(mark) == []


def test_processes_that_a_run_leaves_behind_are_ended(tmp_path):
    mark = str(tmp_path / "mark")
    code = "import os, time; wait = lambda: os.path.exists(sys.argv[1])\nwhile not wait(): time.sleep(0.05)"
    assert run(tmp_path, STUBBORN.replace("time.sleep(300)\n", code), mark) is None
    assert having(mark) == []


def start_program(tmp_path, mark):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run.log"), sys.executable, "-c", STUBBORN, mark]
    program = subprocess.Popen(command, cwd=ROOT)
    wait_for(lambda: os.path.exists(mark))
    assert len(having(mark)) >= 3
    return program


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_program(tmp_path, number):
    mark = str(tmp_path / "mark")
    program = start_program(tmp_path, mark)
    program.send_signal(number)
    assert program.wait(20) == (-9 if number == signal.SIGKILL else 128 + number)
    wait_for(lambda: not having(mark))


def test_a_variant_imports_the_modules_of_its_checkout(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo/__init__.py").write_text("")
    command = [sys.executable, "-P", "-c", "import zoo; print(zoo.__file__)"]
    for checkout in (tmp_path, CHECKOUT):
        assert process.run(command, tmp_path / "run.log", checkout, 60.0, NoStop()) is None
        assert (tmp_path / "run.log").read_text().strip() == str(checkout / "zoo/__init__.py")


def test_the_commands_of_a_case(tmp_path):
    recipe = Recipe("tsm_demo", "configs/tsm_demo.yaml", "tsm", "tsm")
    case = Case(Variant("x", tmp_path, ("-o", "a.b=1")), recipe, "paddle", "amp", 8, World(1, 1))
    command = process.command(case, tmp_path / "run", ["--speed"], ["--by", "mpirun"])
    assert command[1] == str(tmp_path / "train.py") and command[-2:] == ["-o", "a.b=1"] and "--by" not in command
    assert "train.batch=8" in command and "train.global_batch=null" in command and "train.precision=amp" in command
    assert "train.batch=8" not in process.command(case._replace(sets_batch=False), tmp_path / "run", [], [])
    command = process.command(case._replace(world=World(2, 4)), tmp_path / "run", ["--speed"], ["--by", "mpirun"])
    assert command[1:3] == [str(tmp_path / "tools/launch.py"), "2x4"]
    assert command[3:7] == ["--logs", f"{tmp_path / 'run'}.ranks", "--by", "mpirun"]
