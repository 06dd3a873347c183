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
from zoo.bench.matrix.cases import CHECKOUT, Case, Recipe, Variant
from zoo.bench.matrix.process import OUT_OF_MEMORY, StopSignal
from zoo.bench.options import Cluster

# Starts a process with the mark in its command line, which touches the file of that name and sleeps.
LEAVING = """
import subprocess, sys, time
code = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(300)"
subprocess.Popen([sys.executable, "-c", code, sys.argv[1]])
"""
SLEEPING = LEAVING + "time.sleep(300)"
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


def test_a_run_that_ends_well(tmp_path):
    assert run(tmp_path, "print('hello')") is None
    assert (tmp_path / "run.log").read_text() == "hello\n"


@pytest.mark.parametrize(
    "code, reason",
    [
        ("import sys; print('error: optim.lr: wrong'); print('end'); sys.exit(2)", "optim.lr: wrong (exit code 2"),
        ("raise KeyError('x')", "KeyError: 'x' (exit code 1"),
        ("import os; os._exit(3)", "no output (exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "no output (exit code -11"),
        ("import os; os.kill(os.getpid(), 9)", OUT_OF_MEMORY),  # as the kernel does where memory is short
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


def test_the_limit_of_memory(tmp_path):
    code = "import time; held = bytearray(300 << 20); held[::4096] = b'x' * len(held[::4096]); time.sleep(60)"
    assert run(tmp_path, code, memory=150 << 20) == OUT_OF_MEMORY
    assert run(tmp_path, code.replace("300", "3").replace("60", "0.2"), memory=150 << 20) is None


def test_no_process_outlives_a_run(tmp_path):
    mark = str(tmp_path / "mark")
    assert run(tmp_path, SLEEPING, mark, seconds=0.5) == "did not end within 0.5 s"
    assert run(tmp_path, LEAVING, mark) is None
    assert having(mark) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_ends_with_the_program(tmp_path, number):
    mark = str(tmp_path / "mark")
    code = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(300)"
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run.log"), sys.executable, "-c", code, mark]
    program = subprocess.Popen(command, cwd=ROOT)
    while not os.path.exists(mark):
        assert program.poll() is None
        time.sleep(0.02)
    program.send_signal(number)
    assert program.wait(20) == (-9 if number == signal.SIGKILL else 128 + number)
    deadline = time.monotonic() + 20
    while having(mark):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_variant_imports_the_modules_of_its_checkout(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo/__init__.py").write_text("")
    command = [sys.executable, "-P", "-c", "import zoo; print(zoo.__file__)"]
    for checkout in (tmp_path, CHECKOUT):
        assert process.run(command, tmp_path / "run.log", checkout, 60.0, NoStop()) is None
        assert (tmp_path / "run.log").read_text().strip() == str(checkout / "zoo/__init__.py")


def test_the_commands_of_a_case(tmp_path):
    recipe = Recipe("tsm_demo", "configs/tsm_demo.yaml", "tsm", "tsm")
    case = Case(Variant("x", tmp_path, ("-o", "a.b=1")), recipe, "paddle", "amp", 8, Cluster(1, 1))
    command = process.command(case, tmp_path / "run", ["--speed"], ["--by", "mpirun"])
    assert command[1] == str(tmp_path / "train.py") and command[-2:] == ["-o", "a.b=1"] and "--by" not in command
    assert "train.batch=8" in command and "train.global_batch=null" in command and "train.precision=amp" in command
    assert "train.batch=8" not in process.command(case._replace(sets_batch=False), tmp_path / "run", [], [])
    command = process.command(case._replace(world=Cluster(2, 4)), tmp_path / "run", ["--speed"], ["--by", "mpirun"])
    assert command[1:3] == [str(tmp_path / "tools/launch.py"), "2x4"]
    assert command[3:7] == ["--logs", f"{tmp_path / 'run'}.ranks", "--by", "mpirun"]
