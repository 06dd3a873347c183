"""JAX's profiler."""

import gzip
import json
import os
from collections import defaultdict
from pathlib import Path

import jax

from zoo.trainer.world import TRACE, Operator


class Profiler:
    """See Profiler in zoo/trainer/world.py: the operations of a GPU or TPU; of a CPU, XLA's trace has none."""

    def start(self, folder: str) -> None:
        self._folder = folder
        jax.profiler.start_trace(folder)

    def stop(self) -> list[Operator]:
        jax.profiler.stop_trace()
        (packed,) = Path(self._folder).rglob("*.trace.json.gz")
        text = gzip.decompress(packed.read_bytes())
        Path(os.path.join(self._folder, TRACE)).write_bytes(text)
        times: dict[str, list[float]] = defaultdict(list)  # ms of each call
        for event in json.loads(text)["traceEvents"]:
            if "hlo_op" in event.get("args", {}):
                times[event["name"]].append(event["dur"] / 1000)
        return [Operator(name, sum(calls), len(calls)) for name, calls in times.items()]
