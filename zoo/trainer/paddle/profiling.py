"""Paddle's profiler."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import paddle.profiler

from zoo.trainer.world import TRACE, Operator

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
    """Return the own times of the events of a trace in some categories, those within them left out."""
    threads: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in categories:
            threads[event.get("tid")].append(event)
    times: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for thread in threads.values():
        around: list[Mapping[str, Any]] = []  # the events that have not ended, each within the one before
        for event in sorted(thread, key=lambda event: (event["ts"], -event["dur"])):
            while around and around[-1]["ts"] + around[-1]["dur"] <= event["ts"]:
                around.pop()
            if around:
                times[_name(around[-1])] -= event["dur"]
            times[_name(event)] += event["dur"]
            calls[_name(event)] += 1
            around.append(event)
    return [Operator(name, microseconds / 1000, calls[name]) for name, microseconds in times.items()]


def _name(event: Mapping[str, Any]) -> str:
    """Return conv2d for `conv2d dygraph[15.072 us]`."""
    return event["name"].rpartition("[")[0].removesuffix(" dygraph") or event["name"]
