"""Viewers of a run: journal listeners that also show images and histograms, which the journal does not hold.

TensorBoard is written by the tensorboard package alone, without any framework; zoo/logs/trackers.py has the others.
"""

import io
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from zoo.data.errors import printable
from zoo.logs.journal import Event, Listener

if TYPE_CHECKING:
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata

# Events whose numbers are curves, and their groups, which viewers sort by name: training first, then validation.
GROUPS = {"train": "train", "eval": "val"}
CURVES = ("loss", "lr", "grad_norm")  # of training; its other numbers are in the group train_system
PNG_EFFORT = 1  # of zlib, 0 to 9: images are written during a run


class Histogram(NamedTuple):
    """Distribution of the elements of a tensor: counts (B,) between edges (B + 1,)."""

    counts: np.ndarray
    edges: np.ndarray


class Viewer(Listener, Protocol):
    """A listener that shows images and histograms."""

    def show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
        """Show images, uint8 RGB (H, W, 3), and histograms of the last event `eval`, both by name."""


def numbers(event: Event) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an event of GROUPS by name, such as train/loss and, of a dictionary, train_step_ms/p50."""
    group = GROUPS[event["event"]]
    for name, value in event.items():
        if isinstance(value, dict):
            yield from _flatten(f"{group}_{name}", value)
        elif name not in ("event", "time", "step"):
            is_curve = group != "train" or name in CURVES
            yield from _flatten(group if is_curve else f"{group}_system", {name: value})


def _flatten(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}/{key}", value)
        elif isinstance(value, (int, float)):
            yield printable(f"{prefix}/{key}"), value


class TensorBoard:
    """Viewer that writes numbers, images, histograms and the recipe to a file in the run's folder."""

    def __init__(self, run: str, recipe: str, hparams: Mapping[str, Any]):
        """Open a new file of events in a run's folder. hparams: by which the tab HPARAMS compares runs."""
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # takes half a second to import

        self._writer, self._recipe, self._hparams = EventFileWriter(run), recipe, hparams
        self._time = time.time()  # of the last event

    def __call__(self, event: Event) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.scalar import metadata as scalar
        from tensorboard.plugins.text import metadata as text

        self._time = event["time"]
        if event["event"] in GROUPS:
            metadata = scalar.create_summary_metadata(None, None)
            for name, value in numbers(event):
                self._add(name, np.float32(value), metadata, event["step"], event["time"])
        elif event["event"] in ("begin", "resume"):
            indented = "".join(f"    {line}\n" for line in self._recipe.splitlines())  # Markdown's verbatim text
            recipe = np.array(indented.encode(), object)
            self._add("recipe", recipe, text.create_summary_metadata(None, None), event.get("step", 0), event["time"])
            values = {
                key: value if isinstance(value, int | float) else str(value) for key, value in self._hparams.items()
            }
            summary = hparams_pb(values, start_time_secs=event["time"])
            self._writer.add_event(event_pb2.Event(wall_time=event["time"], summary=summary))
        if event["event"] == "eval":
            self._writer.flush()

    def show(self, step: int, images: Mapping[str, np.ndarray], histograms: Mapping[str, Histogram]) -> None:
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
        event.summary.value.add(tag=printable(name), tensor=tensor_util.make_tensor_proto(value), metadata=metadata)
        self._writer.add_event(event)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image  # images are drawn only where it is installed

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=PNG_EFFORT)
    return buffer.getvalue()
