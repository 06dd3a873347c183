"""Processes of a matrix: their end, why they failed, what others do on the machine, and turns of several."""

import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import psutil
import pytest

from tests.helpers.paths import ROOT
from zoo.bench.matrix import process
from zoo.bench.matrix.cases import CHECKOUT
from zoo.bench.matrix.process import OUT_OF_MEMORY, Load, TurnGiver
from zoo.data.errors import UserError
from zoo.run.speed import Turns

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
process.run(sys.argv[2:], Path(sys.argv[1]), process.CHECKOUT, 300.0)
"""


def run(tmp_path, code, *words, seconds=60.0, memory=None):
    return process.run([sys.executable, "-c", code, *words], tmp_path / "run.log", CHECKOUT, seconds, memory)


def having(mark):
    """Return the processes with a word in their command line that have not ended."""
    processes = psutil.process_iter(["cmdline", "status"])
    return [each for each in processes if mark in (each.info["cmdline"] or []) and each.info["status"] != "zombie"]


def wait_for_end(mark):
    """Wait until the processes with a word in their command line have ended: a kill takes effect after it is sent."""
    deadline = time.monotonic() + 20
    while having(mark):
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
    wait_for_end(mark)


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
    assert program.wait(20) == -number
    wait_for_end(mark)


def test_a_variant_imports_the_modules_of_its_checkout(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo/__init__.py").write_text("")
    command = [sys.executable, "-P", "-c", "import zoo; print(zoo.__file__)"]
    for checkout in (tmp_path, CHECKOUT):
        assert process.run(command, tmp_path / "run.log", checkout, 60.0) is None
        assert (tmp_path / "run.log").read_text().strip() == str(checkout / "zoo/__init__.py")


def test_waiting_until_it_is_idle(monkeypatch, capsys):
    loads, slept = [Load(0.6), Load(0.6), Load(0.01)], []
    monkeypatch.setattr(process, "measure_load", lambda: loads.pop(0))
    monkeypatch.setattr(process.time, "sleep", slept.append)
    assert process.check_load("wait") == Load(0.01)
    assert slept == [process.WAIT_INTERVAL] * 2 and capsys.readouterr().out.count("waiting") == 2


class OneRank:
    """A group of a single rank."""

    rank = 0

    def set_status(self, text):
        pass

    def all_gather(self, value):
        return [value]


def play(runs):
    """Let runs take turns; return who computed when, as (name, begin, end). runs: name -> number of turns."""
    intervals = []

    def compute(name, turns_at, count):
        turns = Turns(turns_at, OneRank())
        for _ in range(count):
            turns.wait()
            begin = time.monotonic()
            time.sleep(0.005)
            intervals.append((name, begin, time.monotonic()))
        turns.wait()

    with TurnGiver() as giver:
        threads = [threading.Thread(target=compute, args=(name, giver.path, n)) for name, n in runs.items()]
        for thread in threads:
            thread.start()
        giver.serve(lambda: sum(thread.is_alive() for thread in threads))
    return intervals


def test_nobody_computes_in_the_turn_of_another_and_laps_change_direction():
    intervals = play({"a": 6, "b": 6, "c": 6})
    ordered = sorted(intervals, key=lambda interval: interval[1])
    assert all(before[2] <= after[1] for before, after in pairwise(ordered))
    names = [name for name, _, _ in ordered]
    laps = [names[start : start + 3] for start in range(0, 18, 3)]
    assert all(sorted(lap) == ["a", "b", "c"] for lap in laps)
    assert laps[1] == laps[0][::-1] and laps[2] == laps[0] and laps[3] == laps[0][::-1]


def test_a_run_whose_turns_have_ended_says_so():
    with TurnGiver() as giver:
        turns = Turns(giver.path, OneRank())
    with pytest.raises(UserError, match="has ended"):
        turns.wait()
