"""TensorBoard's view of a run, written by the tensorboard package alone, without any framework."""

import io
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.logs.journal import Event
from zoo.logs.viewers import SHOWN_EVENTS, Histogram, numbers

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata

PNG_EFFORT = 1  # of zlib, 0 to 9: images are written during a run


class TensorBoard:
    """Viewer that writes numbers, images, histograms and the recipe to <run>/tensorboard; see zoo.logs.viewers."""

    def __init__(self, run: str, recipe: str):
        """Open a new file of events.

        Args:
            run: folder of the run.
            recipe: text to show.
        """
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # takes half a second to import

        self._writer, self._recipe = EventFileWriter(os.path.join(run, "tensorboard")), recipe
        self._time = time.time()  # of the last event

    def __call__(self, event: Event) -> None:
        from tensorboard.plugins.scalar import metadata as scalar
        from tensorboard.plugins.text import metadata as text

        self._time = event["time"]
        if event["event"] in SHOWN_EVENTS:
            metadata = scalar.create_summary_metadata(None, None)
            for name, value in numbers(event):
                self._add(name, np.float32(value), metadata, event["step"], event["time"])
        elif event["event"] in ("begin", "resume"):
            indented = "".join(f"    {line}\n" for line in self._recipe.splitlines())  # Markdown's verbatim text
            recipe = np.array(indented.encode(), object)
            self._add("recipe", recipe, text.create_summary_metadata(None, None), event.get("step", 0), event["time"])
        if event["event"] == "eval":
            self._writer.flush()

    def show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        """Write images and histograms."""
        from tensorboard.plugins.histogram import metadata as histogram
        from tensorboard.plugins.image import metadata as image

        for name, pixels in images.items():
            height, width = (str(side).encode() for side in pixels.shape[:2])
            encoded = np.array([width, height, _png(pixels)], object)
            self._add(name, encoded, image.create_summary_metadata(None, None), step, self._time)
        for name, (counts, edges) in histograms.items():
            buckets = np.stack([edges[:-1], edges[1:], counts], 1)
            self._add(name, buckets, histogram.create_summary_metadata(None, None), step, self._time)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _add(self, name: str, value: Any, metadata: "SummaryMetadata", step: int, wall_time: float) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.util import tensor_util

        event = event_pb2.Event(wall_time=wall_time, step=step)
        event.summary.value.add(tag=name, tensor=tensor_util.make_tensor_proto(value), metadata=metadata)
        self._writer.add_event(event)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image  # images are drawn only where it is installed

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=PNG_EFFORT)
    return buffer.getvalue()
