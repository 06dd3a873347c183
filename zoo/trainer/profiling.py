"""Interface to the profiler of a framework."""

from typing import NamedTuple, Protocol

TRACE = "trace.json"  # of a profile, for https://ui.perfetto.dev or chrome://tracing


class Operator(NamedTuple):
    """What updates have spent in an operator or, on a GPU, in a kernel.

    Attributes:
        name: of the framework.
        ms: milliseconds of its own, without those of operators within it.
        calls: how often it ran.
    """

    name: str
    ms: float
    calls: int


class Profiler(Protocol):
    """The framework's own profiler."""

    def start(self, folder: str) -> None:
        """Record from now on. folder: receives the trace; it exists and is empty."""
        ...

    def stop(self) -> list[Operator]:
        """Wait for the device, stop, and write TRACE.

        Returns:
            Everything that ran, in any order; empty where the framework writes no table (MindSpore on an NPU).
        """
        ...
