"""What others do on the machine."""

import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from zoo.bench.matrix import busy
from zoo.bench.matrix.busy import Load
from zoo.bench.matrix.process import Stopped
from zoo.data.errors import UserError

IDLE, BUSY = Load(0.01), Load(0.6, ("make (process 7) 90 % of a core",))
STOP = SimpleNamespace(raise_if_any=lambda: None)


def test_a_process_that_computes_is_seen_and_named():
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        load = busy.measure(1.0)
    finally:
        program.kill()
        program.wait()
    assert load.cpu > 0.5 / psutil.cpu_count()
    assert any(f"(process {program.pid})" in line for line in load.processes) or len(load.processes) == busy.MAX_NAMED


def test_the_share_that_is_taken():
    times = psutil.cpu_times()._replace(**dict.fromkeys(psutil.cpu_times()._fields, 0.0))
    after = times._replace(user=2.0, system=1.0, guest=2.0, iowait=1.0, idle=5.0, steal=1.0)
    assert busy._taken(times, after) == pytest.approx(0.4)  # a guest's time is part of the user's
    assert busy._taken(times, times) == 0.0


def test_a_busy_machine(monkeypatch, capsys):
    monkeypatch.setattr(busy, "measure", lambda: BUSY)
    assert busy.check("warn", STOP) == BUSY
    assert "others take 60% of the CPU time; make (process 7)" in capsys.readouterr().out
    with pytest.raises(UserError, match="the machine is busy"):
        busy.check("refuse", STOP)
    monkeypatch.setattr(busy, "measure", lambda: IDLE)
    assert busy.check("refuse", STOP) == IDLE and capsys.readouterr().out == ""


def test_waiting_until_it_is_idle(monkeypatch, capsys):
    loads, slept = [BUSY, BUSY, IDLE], []
    monkeypatch.setattr(busy, "measure", lambda: loads.pop(0))
    monkeypatch.setattr(busy.time, "sleep", slept.append)
    assert busy.check("wait", STOP) == IDLE
    assert sum(slept) == 2 * busy.WAIT_INTERVAL and capsys.readouterr().out.count("waiting") == 1


def test_waiting_ends_with_a_signal(monkeypatch):
    monkeypatch.setattr(busy, "measure", lambda: BUSY)

    def stop():
        raise Stopped(2)

    with pytest.raises(Stopped):
        busy.check("wait", SimpleNamespace(raise_if_any=stop))


class FakeNvml(SimpleNamespace):
    """NVIDIA's library with two GPUs, the second of which computes for others."""

    class NVMLError(Exception):
        pass

    def __init__(self):
        processes = {0: [], 1: [SimpleNamespace(usedGpuMemory=2_000_000_000), SimpleNamespace(usedGpuMemory=None)]}
        super().__init__(
            nvmlInit=lambda: None,
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetUtilizationRates=lambda index: SimpleNamespace(gpu=80 * index),
            nvmlDeviceGetComputeRunningProcesses=processes.get,
        )


def test_gpus_that_others_use(monkeypatch):
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    found = busy._gpus()
    assert found == ("GPU 1 computes 80% of the time, others hold 2.0 GB",) and Load(0.0, (), found).is_busy

    def no_driver():
        raise nvml.NVMLError

    nvml.nvmlInit = no_driver
    assert busy._gpus() == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert busy._gpus() == ()
