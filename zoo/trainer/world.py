"""A process of a run: how it was launched, and the interface to its device, process group and profiler."""

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

from zoo.data.errors import UserError
from zoo.trainer.plan import Arithmetic, Mode

TRACE = "trace.json"  # of a profile, for https://ui.perfetto.dev or chrome://tracing

# Seconds in which all processes of a run must have started, met and joined the framework's group, and during which a
# slow one counts neither as dead nor as a straggler: on a busy machine a process may take minutes to begin.
BEGIN_TIMEOUT = 600.0
WAIT_REPORT = 30.0  # seconds after which, and between which, the wait names the processes that are missing


class UnsupportedPrecision(UserError):
    """A framework has no such precision on its device."""


@dataclass(frozen=True)
class Launch:
    """This process among those of a run, as the launcher describes it.

    Attributes:
        rank: of this process, from 0.
        local_rank: rank among the processes of this machine, and index of the process's device.
        launcher: name of the launcher; "single" for one process.
        address: host name of rank 0; its IP address after the rendezvous.
        local_address: IP address of this process, set after the rendezvous.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    launcher: str = "single"
    address: str = "127.0.0.1"
    job: str = ""
    local_address: str = "127.0.0.1"


class Operator(NamedTuple):
    """Time that updates have spent in an operator or, on a GPU, in a kernel.

    Attributes:
        ms: milliseconds of its own, without those of operators within it.
        calls: how often it ran.
    """

    name: str
    ms: float
    calls: int


def own_times(events: Iterable[Mapping[str, Any]], name_of: Callable[[Mapping[str, Any]], str]) -> list[Operator]:
    """Return the own times of the events of a trace of Chrome, those within them left out."""
    threads: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        threads[event.get("pid"), event.get("tid")].append(event)
    times: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for thread in threads.values():
        around: list[Mapping[str, Any]] = []  # the events that have not ended, each within the one before
        for event in sorted(thread, key=lambda event: (event["ts"], -event["dur"])):
            while around and around[-1]["ts"] + around[-1]["dur"] <= event["ts"]:
                around.pop()
            if around:
                times[name_of(around[-1])] -= event["dur"]
            times[name_of(event)] += event["dur"]
            calls[name_of(event)] += 1
            around.append(event)
    return [Operator(name, microseconds / 1000, calls[name]) for name, microseconds in times.items()]


class Profiler(Protocol):
    def start(self, folder: str) -> None:
        """Record from now on. folder: receives the trace; it exists and is empty."""
        ...

    def stop(self) -> list[Operator]:
        """Wait for the device, stop, and write TRACE.

        Returns:
            Everything that ran, in any order; empty where the framework writes no table (MindSpore on an NPU).
        """
        ...


class World(Protocol):
    """This process's device and the framework's process group.

    `start` joins the processes through a free port of rank 0's machine and runs a first all-reduce.

    Attributes:
        device: description for logs, such as "cpu (8 threads)" or "cuda:0 (NVIDIA H100)".
        cuda_index: number of the CUDA device; None if the device is none.
        version: of the framework, such as "2.13.0".
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def cuda_index(self) -> int | None: ...
    @property
    def version(self) -> str: ...

    def libraries(self) -> dict[str, str | None]:
        """Return the versions of cuda, cudnn, nccl and cann that the framework uses, None for those that it does not.

        They are those of the framework's build, also where this process computes on a CPU.
        """
        ...

    def accelerator(self) -> dict[str, Any] | None:
        """Return the GPU or NPU of this process, None on a CPU.

        Returns:
            `name` and `memory_bytes`, None where the device does not tell.
        """
        ...

    def peak_memory(self) -> int | None:
        """Return the largest number of bytes of the device that tensors have occupied at once; None on a CPU."""
        ...

    def record_event(self) -> Any:
        """Record an event behind the operations that the device has been given so far, and return it.

        Returns:
            An object with `elapsed_time(later)` in milliseconds, for events that the device has reached; None where
            the host waits for the device, as on a CPU, or where the framework's events are not used.
        """
        ...

    def profiler(self) -> Profiler:
        """Return a profiler of this process; to be used once."""
        ...

    def resolve_mode(self, requested: Mode) -> Mode:
        """Return the mode that this device runs for a requested one, with every choice made.

        Raises:
            UnsupportedPrecision: it has no such precision.
        """
        ...

    def set_arithmetic(self, arithmetic: Arithmetic) -> None:
        """Set the arithmetic of this process, before a model is built."""
        ...

    def arithmetic(self) -> dict[str, Any]:
        """Return the framework's settings that decide how it computes, by its own names, as they are in force."""
        ...

    def close(self) -> None:
        """Leave the process group. Called once, by all ranks."""
        ...

    def exit_process(self, code: int) -> None:
        """Exit now if the framework cannot shut down safely by itself; else return.

        Called last, after all ranks have disconnected.
        """
        ...


def exit_now(code: int) -> NoReturn:
    """End this process without the teardown of Python and of the libraries it has loaded."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
