"""What others do on this machine: CPU time, and work on its GPUs."""

import importlib
import time
from contextlib import suppress
from typing import Any, NamedTuple

import psutil

from zoo.bench.matrix.process import StopSignal
from zoo.data.errors import UserError

INTERVAL = 1.0  # seconds of a measurement
CPU_LIMIT = 0.1  # share of all cores from which on the machine counts as busy
GPU_LIMIT = 0.05  # share of the time in which a GPU computes
WAIT_INTERVAL = 10.0  # seconds between measurements of --busy wait
MAX_NAMED = 3  # processes that a message names


class Load(NamedTuple):
    """Work of others on this machine.

    Attributes:
        cpu: share of all cores' time that is taken, also by other virtual machines (steal).
        processes: those that take most of it, as far as they are visible: "name (pid 123) 45 % of a core".
        gpus: a line for each GPU that computes, or holds memory of a process.
    """

    cpu: float
    processes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()

    @property
    def is_busy(self) -> bool:
        return self.cpu > CPU_LIMIT or bool(self.gpus)

    def __str__(self) -> str:
        return "; ".join([f"others take {self.cpu:.0%} of the CPU time", *self.processes, *self.gpus])


def measure(interval: float = INTERVAL) -> Load:
    """Measure for an interval in seconds, in which this program only sleeps."""
    before = _process_times()
    start = time.monotonic()
    total = psutil.cpu_times()
    time.sleep(interval)
    share = _taken(total, psutil.cpu_times())
    elapsed = time.monotonic() - start
    used = {key: seconds - before[key] for key, seconds in _process_times().items() if key in before}
    largest = sorted(used.items(), key=lambda item: -item[1])[:MAX_NAMED]
    named = tuple(
        f"{name} (process {pid}) {seconds / elapsed:.0%} of a core"
        for (pid, name), seconds in largest
        if seconds / elapsed > CPU_LIMIT
    )
    return Load(share, named, _gpus())


def check(policy: str, stop: StopSignal) -> Load:
    """Measure before a run, and do what the policy says if the machine is busy.

    Args:
        policy: warn, wait or refuse.
        stop: ends the waiting.

    Raises:
        UserError: the machine is busy and the policy is to refuse.
        Stopped: a signal came.
    """
    load, waited = measure(), False
    while load.is_busy and policy == "wait":
        if not waited:
            print(f"waiting until the machine is idle: {load}", flush=True)
        waited = True
        for _ in range(int(WAIT_INTERVAL / INTERVAL)):
            stop.raise_if_any()
            time.sleep(INTERVAL)
        load = measure()
    stop.raise_if_any()
    if load.is_busy and policy == "refuse":
        raise UserError(f"the machine is busy: {load}; the same command goes on later, or take --busy wait or warn")
    if load.is_busy:
        print(f"warning: the machine is busy: {load}", flush=True)
    return load


def _taken(before: Any, after: Any) -> float:
    """Return the share of the CPU time that was neither idle nor waiting for a disk."""
    spent = {name: getattr(after, name) - getattr(before, name) for name in before._fields}
    for part in ("guest", "guest_nice"):  # of user and nice
        spent.pop(part, None)
    total = sum(spent.values())
    return max(0.0, 1 - (spent["idle"] + spent.get("iowait", 0.0)) / total) if total else 0.0


def _process_times() -> dict[tuple[int, str], float]:
    """Return the CPU seconds of every visible process but this one."""
    times: dict[tuple[int, str], float] = {}
    for process in psutil.process_iter(["pid", "name", "cpu_times"]):
        spent = process.info["cpu_times"]
        if spent and process.pid != psutil.Process().pid:
            times[process.pid, process.info["name"] or "?"] = spent.user + spent.system
    return times


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
