"""Runs in processes of their own, which end with this program; why they failed; what others do; turns of several."""

import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from zoo.bench.matrix.cases import CHECKOUT, Case
from zoo.data import durable, host
from zoo.data.errors import UserError
from zoo.run.speed import ASK, GIVE

POLL_INTERVAL = 0.1  # seconds
GRACE_PERIOD = 5.0  # seconds between asking processes to end and killing them
OUT_OF_MEMORY = "out of memory"
MEMORY_WORDS = re.compile(
    r"out of memory|out_?of_?memory|resource_?exhausted|(cannot|can't|could not|unable to|fail(ed)? to) alloc"
    r"|(not enough|insufficient) memory|memory (is |isn't |not )+enough|allocate (device )?memory failed"
    r"|\bmemoryerror\b",
    re.IGNORECASE,
)
TAIL_BYTES = 64 << 10  # of the console output that is searched for a reason
MAX_REASON = 300  # characters
BUSY_INTERVAL = 1.0  # seconds of a measurement of what others do
BUSY_CPU = 0.1  # share of all cores from which on the machine counts as busy
BUSY_GPU = 0.05  # share of the time in which a GPU computes
WAIT_INTERVAL = 10  # seconds between measurements of --busy wait


def command(case: Case, run: Path, options: Sequence[str], launch_options: Sequence[str]) -> list[str]:
    """Return the command of a run in a folder.

    Args:
        options: of train.py, beside those that the case and its variant give.
        launch_options: of zoo launch, if there are several processes.
    """
    words = ["-c", case.recipe.path, "--framework", case.framework, "--out", str(run), *options]
    words += ["-o", f"train.precision={case.precision}"]
    words += ["-o", f"train.batch={case.batch}", "-o", "train.global_batch=null"] * case.sets_batch
    words += case.variant.options
    checkout = case.variant.checkout
    if case.world.size == 1:
        return [sys.executable, str(checkout / "train.py"), *words]
    launch = [sys.executable, str(checkout / "tools" / "launch.py"), str(case.world), "--logs", f"{run}.ranks"]
    return [*launch, *launch_options, *words]


def run(words: Sequence[str], log: Path, checkout: Path, seconds: float, memory: int | None = None) -> str | None:
    """Run a command until it ends; return None, or why it failed.

    The kernel kills the command when this program ends in whatever way; `zoo launch` then ends the ranks.

    Args:
        checkout: whose modules it imports.
        memory: bytes that its processes may have together; None for no limit.
    """
    environment = dict(os.environ)
    if checkout != CHECKOUT:  # else an installed package, which is this checkout, would come first
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(checkout), environment.get("PYTHONPATH")]))
    try:
        file = open(log, "wb", opener=durable.fresh)  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{log}: cannot be written ({error.strerror})") from None
    with file:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=partial(host.end_with_parent, os.getpid(), by_kernel=True),
        )
        try:
            reason = _watch(process, seconds, memory)
        finally:
            _end(process)
    return reason or (reason_of(log, process.returncode) if process.returncode else None)


def _end(process: subprocess.Popen) -> None:
    """End a command and what it leaves in its session: by SIGTERM, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_PERIOD)


def reason_of(log: Path, code: int) -> str:
    """Return why a run has failed, from the end of its output."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if code in (-signal.SIGKILL, 128 + signal.SIGKILL) or any(map(MEMORY_WORDS.search, lines)):
        return OUT_OF_MEMORY  # the kernel kills for want of memory
    errors = [line.partition("error: ")[2] for line in lines if line.startswith("error: ")]
    last = errors[-1] if errors else lines[-1] if lines else "no output"
    return f"{last[:MAX_REASON]} (exit code {code}, {log})"


def _watch(process: subprocess.Popen, seconds: float, memory: int | None) -> str | None:
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() > deadline:
            return f"did not end within {seconds:g} s"
        if memory is not None and _memory(process.pid) > memory:
            return OUT_OF_MEMORY
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_INTERVAL)
    return None


def _memory(pid: int) -> int:
    """Return the bytes that a process and those below it have; pages that they share count once."""
    total = 0
    with suppress(psutil.Error):
        for member in (parent := psutil.Process(pid), *parent.children(recursive=True)):
            with suppress(psutil.Error):
                total += member.memory_full_info().pss
    return total


class Load(NamedTuple):
    """Work of others on this machine."""

    cpu: float  # share of all cores' time that is taken, also by other virtual machines (steal)
    gpus: tuple[str, ...] = ()  # a line for each GPU that computes, or holds memory of a process

    @property
    def is_busy(self) -> bool:
        return self.cpu > BUSY_CPU or bool(self.gpus)

    def __str__(self) -> str:
        return "; ".join([f"others take {self.cpu:.0%} of the CPU time", *self.gpus])


def check_load(policy: str) -> Load:
    """Measure before a run, and do what the policy (warn, wait or refuse) says if the machine is busy."""
    load = measure_load()
    while load.is_busy and policy == "wait":
        print(f"waiting until the machine is idle: {load}", flush=True)
        time.sleep(WAIT_INTERVAL)
        load = measure_load()
    if load.is_busy and policy == "refuse":
        raise UserError(f"the machine is busy: {load}; the same command goes on later, or take --busy wait or warn")
    if load.is_busy:
        print(f"warning: the machine is busy: {load}", flush=True)
    return load


def measure_load() -> Load:
    """Measure for BUSY_INTERVAL seconds, in which this program only sleeps."""
    return Load(psutil.cpu_percent(BUSY_INTERVAL) / 100, _gpus())


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
                if used > BUSY_GPU or processes:
                    memory = sum(process.usedGpuMemory or 0 for process in processes)
                    found.append(f"GPU {index} computes {used:.0%} of the time, others hold {memory / 1e9:.1f} GB")
    return tuple(found)


class TurnGiver:
    """Context manager with a listening socket of its own, whose path is `path`."""

    def __enter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="turns-")  # the path of a socket has 107 characters at most
        self.path = str(Path(self._folder, "socket"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(POLL_INTERVAL)
        self._connected: list[socket.socket] = []
        return self

    def __exit__(self, *_: object) -> None:
        for end in (*self._connected, self._listener):
            end.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def serve(self, running: Callable[[], int]) -> None:
        """Give turns until no run is left; running: returns how many have not ended.

        All runs have one turn in every lap; every other lap is in reverse order, so that a steady drift of the machine
        cancels. The first lap begins when all runs have asked.
        """
        new: list[socket.socket] = []
        while running():
            with suppress(TimeoutError):
                run, _ = self._listener.accept()
                run.settimeout(None)
                self._connected.append(run)
                new.append(run)
            if new and len(new) >= running():
                lap, new = [run for run in new if _asks(run)], []
                while lap:
                    lap = [run for run in reversed(lap) if _take_turn(run)]


def _take_turn(run: socket.socket) -> bool:
    """Give a run its turn and wait for its end; return whether the run asks for another one, else it has ended."""
    with suppress(OSError):
        run.sendall(GIVE)
    return _asks(run)


def _asks(run: socket.socket) -> bool:
    with suppress(OSError):
        return run.recv(1) == ASK
    return False
