"""What others do on the machine."""

import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from zoo.bench.matrix import busy
from zoo.bench.matrix.busy import Load
from zoo.bench.matrix.process import Stopped

IDLE, BUSY = Load(0.01), Load(0.6)
STOP = SimpleNamespace(raise_if_any=lambda: None)


def test_a_process_that_computes_is_seen():
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert busy.measure(1.0).cpu > 0.5 / psutil.cpu_count()
    finally:
        program.kill()
        program.wait()


def test_the_share_that_is_taken():
    times = psutil.cpu_times()._replace(**dict.fromkeys(psutil.cpu_times()._fields, 0.0))
    after = times._replace(user=2.0, system=1.0, guest=2.0, iowait=1.0, idle=5.0, steal=1.0)
    assert busy._taken(times, after) == pytest.approx(0.4)  # a guest's time is part of the user's


def test_waiting_until_it_is_idle_or_a_signal_comes(monkeypatch, capsys):
    loads, slept = [BUSY, BUSY, IDLE], []
    monkeypatch.setattr(busy, "measure", lambda: loads.pop(0))
    monkeypatch.setattr(busy.time, "sleep", slept.append)
    assert busy.check("wait", STOP) == IDLE
    assert sum(slept) == 2 * busy.WAIT_INTERVAL and capsys.readouterr().out.count("waiting") == 1
    monkeypatch.setattr(busy, "measure", lambda: BUSY)

    def stop():
        raise Stopped(2)

    with pytest.raises(Stopped):
        busy.check("wait", SimpleNamespace(raise_if_any=stop))


def test_gpus_that_others_use(monkeypatch):
    """NVIDIA's library with two GPUs, the second of which computes for others."""
    processes = {0: [], 1: [SimpleNamespace(usedGpuMemory=2_000_000_000), SimpleNamespace(usedGpuMemory=None)]}
    nvml = SimpleNamespace(
        NVMLError=type("NVMLError", (Exception,), {}),
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda index: SimpleNamespace(gpu=80 * index),
        nvmlDeviceGetComputeRunningProcesses=processes.get,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert busy._gpus() == ("GPU 1 computes 80% of the time, others hold 2.0 GB",) and Load(0.0, busy._gpus()).is_busy

    def no_driver():
        raise nvml.NVMLError

    nvml.nvmlInit = no_driver
    assert busy._gpus() == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert busy._gpus() == ()
