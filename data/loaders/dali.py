"""Decoding of a batch's images by NVIDIA DALI on the CPU.

The samples are those of the reference loader: the data set reads and draws them (`plan`), DALI decodes, crops, resizes
and mirrors. What it cannot do as the reference loader does, the data set has decoded itself: videos, masks, CMYK, EXIF
orientation, JPEG files decoded at a fraction of their size, photometric distortion. A sample on which DALI fails is
left to the reference loader (fallback.py), which then judges the file.

DALI's colors of videos differ by 1.5 of 255 on average, since it interpolates chroma in another way, and it ignores
their color matrix. So videos are not decoded by it.
"""

import importlib.util
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.data.loaders import soundness
from zoo.data.loaders.dali_graph import Failure, Graph, Steps, groups, table
from zoo.data.pending import Pending, PlannedSample
from zoo.data.stages import DECODE, stage


class _Thread(threading.local):
    """Pipelines of a thread. A pipeline is not for several threads."""

    def __init__(self) -> None:
        self.graphs: dict[Steps, Graph] = {}


_thread = _Thread()


def is_installed() -> bool:
    """Return whether DALI is installed."""
    return bool(importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali"))


def require() -> None:
    """Check that DALI is installed. Raises UserError."""
    if not is_installed():
        raise UserError(
            "data.loader: dali needs NVIDIA DALI, which is not installed; pip install 'vision-zoo[dali]', or set "
            "-o data.loader=reference"
        )


@stage(DECODE)
def decode(samples: Sequence[PlannedSample]) -> None:
    """Replace what is pending in samples by arrays. Raises Failure, and changes nothing, if DALI cannot decode it."""
    soundness.check(samples)
    pending = [
        (sample, name, value) for sample in samples for name, value in sample.items() if isinstance(value, Pending)
    ]
    files = [np.frombuffer(file, np.uint8) for _, _, value in pending for file in value.files]
    rows = table([value.geometry for _, _, value in pending for _ in value.files])
    images: list[np.ndarray | None] = [None] * len(files)
    for key, members in groups(rows):
        decoded = _run(key, [files[at] for at in members], rows[members])
        for row, at in enumerate(members):
            images[at] = np.array(decoded.at(row))
    ready: Any = iter(images)
    for sample, name, value in pending:
        parts = [next(ready) for _ in value.files]
        sample[name] = np.stack(parts) if value.stacked else parts[0]


def _run(key: Steps, files: Sequence[np.ndarray], rows: np.ndarray) -> Any:
    """Decode images whose geometries need the same operators, as Graph.run does."""
    graph = _thread.graphs.get(key)
    if graph is None or len(files) > graph.room:
        # One thread, because the stream reads several batches at once.
        graph = _thread.graphs[key] = Graph(key, len(files), threads=1)
    try:
        return graph.run(files, rows)
    except Failure:
        _thread.graphs.pop(key)
        raise
