"""What others do on this machine: CPU time, and work on its GPUs."""

import importlib
import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from zoo.bench.matrix.process import StopSignal
from zoo.data.errors import UserError

INTERVAL = 1.0  # seconds of a measurement
CPU_LIMIT = 0.1  # share of all cores from which on the machine counts as busy
GPU_LIMIT = 0.05  # share of the time in which a GPU computes
WAIT_INTERVAL = 10  # seconds between measurements of --busy wait


class Load(NamedTuple):
    """Work of others on this machine.

    Attributes:
        cpu: share of all cores' time that is taken, also by other virtual machines (steal).
        gpus: a line for each GPU that computes, or holds memory of a process.
    """

    cpu: float
    gpus: tuple[str, ...] = ()

    @property
    def is_busy(self) -> bool:
        return self.cpu > CPU_LIMIT or bool(self.gpus)

    def __str__(self) -> str:
        return "; ".join([f"others take {self.cpu:.0%} of the CPU time", *self.gpus])


def check(policy: str, stop: StopSignal) -> Load:
    """Measure before a run, and do what the policy (warn, wait or refuse) says if the machine is busy.

    Raises:
        UserError: the machine is busy and the policy is to refuse.
        Stopped: a signal came while this waited; stop notes it.
    """
    load = measure()
    if load.is_busy and policy == "wait":
        print(f"waiting until the machine is idle: {load}", flush=True)
    while load.is_busy and policy == "wait":
        for _ in range(WAIT_INTERVAL):
            stop.raise_if_any()
            time.sleep(1)
        load = measure()
    stop.raise_if_any()
    if load.is_busy and policy == "refuse":
        raise UserError(f"the machine is busy: {load}; the same command goes on later, or take --busy wait or warn")
    if load.is_busy:
        print(f"warning: the machine is busy: {load}", flush=True)
    return load


def measure() -> Load:
    """Measure for INTERVAL seconds, in which this program only sleeps."""
    return Load(psutil.cpu_percent(INTERVAL) / 100, _gpus())


def _gpus() -> tuple[str, ...]:
    """Return a line for every NVIDIA GPU that is used; none without NVIDIA's library or driver."""
    found = []
    with suppress(ImportError):
        nvml = importlib.import_module("pynvml")
        with suppress(nvml.NVMLError):
            nvml.nvmlInit()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                used = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                if used > GPU_LIMIT or processes:
                    memory = sum(process.usedGpuMemory or 0 for process in processes)
                    found.append(f"GPU {index} computes {used:.0%} of the time, others hold {memory / 1e9:.1f} GB")
    return tuple(found)
