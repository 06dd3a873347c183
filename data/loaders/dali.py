"""Decoding of a batch's images by NVIDIA DALI on the CPU.

The samples are those of the reference loader: the data set reads and draws them (`plan`), DALI decodes, crops, resizes
and mirrors. What it cannot do as the reference loader does, the data set has decoded itself: videos, masks, CMYK, EXIF
orientation, JPEG files decoded at a fraction of their size, photometric distortion. A file on which DALI fails leaves
its batch to the reference loader, which then judges the file; a warning says so once per process.

DALI's colors of videos differ by 1.5 of 255 on average, since it interpolates chroma in another way, and it ignores
their color matrix. So videos are not decoded by it.
"""

import importlib.util
import threading
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from data.errors import UserError
from data.pending import Pending, PlannedSample
from data.stages import DECODE, stage
from data.transforms.geometry import Geometry
from data.transforms.pixels import pad


class Steps(NamedTuple):
    """Operators of a pipeline: the steps of a geometry that are not left out. Mirroring is always among them."""

    box: bool
    resize: bool
    antialias: bool
    window: bool


class _Failure(Exception):
    """DALI cannot decode some image of a batch."""


class _Thread(threading.local):
    """Pipelines of a thread, and how many images they have room for. A pipeline is not for several threads."""

    def __init__(self) -> None:
        self.pipelines: dict[Steps, tuple[int, Any]] = {}


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
def decode(samples: Sequence[PlannedSample]) -> bool:
    """Replace what is pending in samples by arrays; return False if DALI cannot decode one of the images."""
    pending = [
        (sample, name, value) for sample in samples for name, value in sample.items() if isinstance(value, Pending)
    ]
    files: dict[Steps, list[tuple[bytes, Geometry]]] = {}
    for _, _, value in pending:
        of_steps = files.setdefault(steps(value.geometry), [])
        of_steps += [(file, value.geometry) for file in value.files]
    try:
        images = {key: iter(_run(key, entries)) for key, entries in files.items()}
    except _Failure as error:
        warnings.warn(
            f"data.loader: the reference loader reads a batch that DALI cannot decode ({error})", stacklevel=1
        )
        return False
    for sample, name, value in pending:
        decoded = [next(images[steps(value.geometry)]) for _ in value.files]
        sample[name] = np.stack(decoded) if value.stacked else decoded[0]
    return True


def steps(geometry: Geometry) -> Steps:
    """Return the operators that a geometry needs; padding is no operator, since few images need it."""
    resizes = geometry.size is not None
    return Steps(geometry.box is not None, resizes, resizes and geometry.antialias, geometry.window is not None)


def _run(key: Steps, entries: Sequence[tuple[bytes, Geometry]]) -> list[np.ndarray]:
    """Decode images whose geometries need the same operators: uint8 RGB (H, W, 3) each."""
    room, pipeline = _thread.pipelines.get(key, (0, None))
    if len(entries) > room:
        room, pipeline = len(entries), _build(key, len(entries))
        _thread.pipelines[key] = room, pipeline
    geometries = [geometry for _, geometry in entries]
    inputs: dict[str, Any] = {
        "encoded": [np.frombuffer(file, np.uint8) for file, _ in entries],
        "flip": np.array([geometry.flip for geometry in geometries], np.int32),
    }
    if key.box:
        inputs |= _corners("box", [geometry.box for geometry in geometries])
    if key.resize:
        inputs["size"] = np.array([geometry.size for geometry in geometries], np.float32)[:, ::-1].copy()
    if key.window:
        inputs |= _corners("window", [geometry.window for geometry in geometries])
    try:
        for name, values in inputs.items():
            pipeline.feed_input(name, values)
        (images,) = pipeline.run()
    except RuntimeError as error:
        _thread.pipelines.pop(key)  # it cannot run again
        raise _Failure(_reason(error)) from error
    return [_padded(np.array(images.at(row)), geometry) for row, geometry in enumerate(geometries)]


def _reason(error: RuntimeError) -> str:
    """Return the line of DALI's message that follows its traceback, or the first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    at = lines.index("encountered:") + 1 if "encountered:" in lines[:-1] else 0
    return lines[at]


def _corners(name: str, boxes: Sequence[Any]) -> dict[str, np.ndarray]:
    corners = np.array(boxes, np.int32)
    return {f"{name}_start": corners[:, :2].copy(), f"{name}_shape": corners[:, 2:].copy()}


def _padded(image: np.ndarray, geometry: Geometry) -> np.ndarray:
    return pad(image, geometry.canvas, geometry.fill) if geometry.canvas else image


def _build(key: Steps, room: int) -> Any:
    """Build a pipeline for up to `room` images."""
    from nvidia.dali import fn
    from nvidia.dali import types as dali_types
    from nvidia.dali.pipeline import Pipeline

    types: Any = dali_types  # whose constants type checkers do not see

    def integers(name: str, ndim: int = 1) -> Any:
        return fn.external_source(name=name, dtype=types.INT32, ndim=ndim)

    # One thread, because the stream reads several batches at once.
    pipeline = Pipeline(batch_size=room, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        images: Any = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
        if key.box:
            start, shape = integers("box_start"), integers("box_shape")
            images = fn.decoders.image_slice(images, start, shape, axes=[1, 0], output_type=types.RGB)
        else:
            images = fn.decoders.image(images, output_type=types.RGB)
        if key.resize:
            size = fn.external_source(name="size", dtype=types.FLOAT, ndim=1)
            images = fn.resize(images, size=size, interp_type=types.INTERP_LINEAR, antialias=key.antialias)
        if key.window:
            images = fn.slice(images, start=integers("window_start"), shape=integers("window_shape"), axes=[1, 0])
        pipeline.set_outputs(fn.flip(images, horizontal=integers("flip", 0)))
    pipeline.build()
    return pipeline
