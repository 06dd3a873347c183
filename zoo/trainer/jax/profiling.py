"""JAX's profiler."""

import gzip
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from zoo.trainer.world import TRACE, Operator

NUMBER = re.compile(r"(\.\d+|\.clone)+$")  # of one operation among those of its kind, such as convolution.5.clone


class Profiler:
    """See Profiler in zoo/trainer/world.py: XLA's operations, by kind."""

    def start(self, folder: str) -> None:
        self._folder = folder
        options = jax.profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = 2, 0  # operations of a CPU, not calls of Python
        jax.profiler.start_trace(folder, profiler_options=options)

    def stop(self) -> list[Operator]:
        jax.profiler.stop_trace()
        (packed,) = Path(self._folder).rglob("*.trace.json.gz")
        text = gzip.decompress(packed.read_bytes())
        Path(os.path.join(self._folder, TRACE)).write_bytes(text)
        threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for event in json.loads(text)["traceEvents"]:
            if "hlo_op" in event.get("args", {}):
                threads[event["pid"], event["tid"]].append(event)
        times: dict[str, list[float]] = defaultdict(list)
        for events in threads.values():
            for name, microseconds in own_times(events):
                times[NUMBER.sub("", name)].append(microseconds / 1000)
        return [Operator(name, sum(calls), len(calls)) for name, calls in times.items()]


def own_times(events: Sequence[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield name and own time of the events of a thread: without those within them."""
    within: list[tuple[dict[str, Any], list[float]]] = []  # events that have not ended, and the times within them

    def ended(time: float) -> Iterator[tuple[str, float]]:
        while within and within[-1][0]["ts"] + within[-1][0]["dur"] <= time:
            event, inner = within.pop()
            yield event["name"], event["dur"] - sum(inner)

    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        yield from ended(event["ts"])
        if within:
            within[-1][1].append(event["dur"])
        within.append((event, []))
    yield from ended(float("inf"))
