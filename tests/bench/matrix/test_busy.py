"""What others do on the machine."""

import sys
from types import SimpleNamespace

import pytest

from zoo.bench.matrix import busy
from zoo.bench.matrix.busy import Load
from zoo.bench.matrix.process import Stopped

IDLE, BUSY = Load(0.01), Load(0.6)
STOP = SimpleNamespace(raise_if_any=lambda: None)


def test_waiting_until_it_is_idle_or_a_signal_comes(monkeypatch, capsys):
    loads, slept = [BUSY, BUSY, IDLE], []
    monkeypatch.setattr(busy, "measure", lambda: loads.pop(0))
    monkeypatch.setattr(busy.time, "sleep", slept.append)
    assert busy.check("wait", STOP) == IDLE
    assert len(slept) == 2 * busy.WAIT_INTERVAL and capsys.readouterr().out.count("waiting") == 1
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
