"""JAX's profiler."""

import gzip
import json
import os
import re
from pathlib import Path

import jax

from zoo.trainer.world import TRACE, Operator, own_times

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
        operations = (each for each in json.loads(text)["traceEvents"] if "hlo_op" in each.get("args", {}))
        return own_times(operations, lambda event: NUMBER.sub("", event["name"]))
