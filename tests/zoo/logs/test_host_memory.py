"""Peak resident memory of a process and its descendants: from a made-up /proc, and of real processes."""

import os
import subprocess
import sys

import pytest

from zoo.logs import host_memory
from zoo.logs.host_memory import HostMemory, family

MIB = 1 << 20


@pytest.fixture
def proc(tmp_path, monkeypatch):
    monkeypatch.setattr(host_memory, "PROC", tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: 10)
    return tmp_path


def add(proc, pid, kib, children=(), tasks=1):
    """Add a process whose last thread has started the children."""
    for task in range(tasks):
        folder = proc / str(pid) / "task" / str(pid + task)
        folder.mkdir(parents=True, exist_ok=True)
        mine = " ".join(map(str, children)) + " " if task == tasks - 1 else ""
        (folder / "children").write_text(mine)
    (proc / str(pid) / "status").write_text(f"Name:\tpython\nVmPeak:\t999999 kB\nVmHWM:\t  {kib} kB\nVmRSS:\t1 kB\n")


def test_all_descendants_count(proc):
    add(proc, 10, 1000, [20, 30], tasks=3)
    add(proc, 20, 100)
    add(proc, 30, 10, [40])
    add(proc, 40, 1)
    add(proc, 50, 5000)  # somebody else's
    assert sorted(family(10)) == [10, 20, 30, 40]
    assert HostMemory().read() == 1111 * 1024


def test_a_process_that_has_ended_counts_as_long_as_it_was_seen(proc):
    add(proc, 10, 1000, [20])
    add(proc, 20, 500)
    memory = HostMemory()
    assert memory.read() == 1500 * 1024
    add(proc, 10, 1100)
    assert memory.read() == 1500 * 1024
    add(proc, 10, 1600, [99])  # a child that ends while it is looked at
    assert memory.read() == 1600 * 1024


def test_a_kernel_without_lists_of_children(monkeypatch, proc):
    (proc / "10" / "task" / "10").mkdir(parents=True)
    (proc / "10" / "status").write_text("VmHWM:\t7 kB\n")
    monkeypatch.setattr(host_memory.psutil, "pid_exists", lambda pid: False)
    assert HostMemory().read() == 7 * 1024


def test_a_real_child_adds_its_memory():
    code = "block = bytearray(64 << 20); print(len(block), flush=True); input()"
    before = HostMemory().read()
    assert 5 * MIB < before < 1 << 40
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert int(child.stdout.readline()) == 64 * MIB
        assert child.pid in family(os.getpid())
        assert 64 * MIB < HostMemory().read() - before < 64 * MIB + 300 * MIB
        child.communicate(b"\n")
    assert child.pid not in family(os.getpid())
