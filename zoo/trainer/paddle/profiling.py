"""Paddle's profiler."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import paddle.profiler

from zoo.trainer.world import TRACE, Operator, own_times

OPERATOR, OF_DEVICE = "Operator", ("Kernel", "Memcpy", "Memset")  # categories of a trace


class Profiler:
    """See Profiler in zoo/trainer/world.py: on a GPU its kernels and copies, else operators by their own time.

    The operators are read from the trace: Paddle's own summary is text.
    """

    def __init__(self, on_device: bool):
        self._on_device = on_device
        targets = [paddle.profiler.ProfilerTarget.CPU] + [paddle.profiler.ProfilerTarget.GPU] * on_device
        self._profiler = paddle.profiler.Profiler(targets=targets, on_trace_ready=lambda profiler: None)

    def start(self, folder: str) -> None:
        self._path = os.path.join(folder, TRACE)
        self._profiler.start()

    def stop(self) -> list[Operator]:
        self._profiler.stop()
        self._profiler.export(self._path)
        with open(self._path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        return operators(events, OF_DEVICE if self._on_device else (OPERATOR,))


def operators(events: Iterable[Mapping[str, Any]], categories: tuple[str, ...]) -> list[Operator]:
    return own_times((each for each in events if each.get("ph") == "X" and each.get("cat") in categories), _name)


def _name(event: Mapping[str, Any]) -> str:
    """Return conv2d for `conv2d dygraph[15.072 us]`."""
    return event["name"].rpartition("[")[0].removesuffix(" dygraph") or event["name"]
