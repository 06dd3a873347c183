"""Decoding by NVIDIA DALI, on a CPU or a GPU: its pipelines. The only module of data/ that imports DALI.

A pipeline for a GPU has the same graph as one for a CPU: the decoders are `mixed` operators, which take bytes on the
host and give pixels on the device, and the operators after them follow their inputs.
"""

import queue
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.batch import Batch, check_shapes
from zoo.data.dataset import PlannedSample
from zoo.data.errors import Option, UserError
from zoo.data.loaders import soundness
from zoo.data.loaders.packed import (
    AT_A_TIME,
    BOX,
    CANVAS,
    FLIP,
    KEY,
    SIZE,
    WINDOW,
    DeviceImages,
    Failure,
    Packed,
    pack,
    unpack,
)


class Steps(NamedTuple):
    """Operators of a pipeline: the steps of a geometry that are not left out. Mirroring is always among them."""

    box: bool
    resize: bool
    antialias: bool
    window: bool
    canvas: bool
    fill: tuple[int, ...]  # of the canvas


def groups(rows: np.ndarray) -> list[tuple[Steps, list[int]]]:
    """Return the rows of a table that need the same operators, by index in ascending order."""
    members: dict[Steps, list[int]] = {}
    for index, row in enumerate(rows[:, KEY].tolist()):
        box, resize, antialias, window, canvas = map(bool, row[:5])
        members.setdefault(Steps(box, resize, antialias, window, canvas, tuple(row[5:])), []).append(index)
    return list(members.items())


class Graph:
    """A pipeline for images whose geometries need the same operators. Not for several threads at a time."""

    def __init__(self, key: Steps, room: int, threads: int, device_id: int | None = None):
        """Build the pipeline.

        Args:
            room: largest number of images at a time.
            device_id: number of the CUDA device; None for a CPU.
        """
        self.key, self.room = key, room
        self._pipeline = define(key, room, threads, device_id)
        self._pipeline.build()

    def run(self, files: Sequence[np.ndarray], rows: np.ndarray) -> Any:
        """Decode images. An instance that has failed cannot run again. Raises Failure.

        Args:
            files: encoded images, uint8.

        Returns:
            DALI's list of uint8 RGB images (H, W, 3), complete, in memory of their own that later runs do not reuse.
        """
        try:
            self._pipeline.feed_input("encoded", list(files))
            for name, values in _inputs(self.key, rows).items():
                self._pipeline.feed_input(name, values)
            (images,) = self._pipeline.run()  # without a stream: waits until the images are complete
        except RuntimeError as error:
            raise Failure(_reason(error)) from error
        return images


def require_device(device_id: int) -> None:
    """Check that DALI can use a CUDA device. Raises UserError."""
    try:
        Graph(Steps(False, False, False, False, False, (0, 0, 0)), 1, 1, device_id)
    except RuntimeError as error:
        raise UserError(
            f"data.dali_device: DALI cannot use cuda:{device_id} ({_reason(error)}); set ",
            Option("data.dali_device", "cpu"),
        ) from None


def define(key: Steps, room: int, threads: int, device_id: int | None) -> Any:
    """Return a pipeline that is not built yet; its operators and their arguments have been checked."""
    from nvidia.dali import fn
    from nvidia.dali import types as dali_types
    from nvidia.dali.pipeline import Pipeline

    types: Any = dali_types  # whose constants type checkers do not see

    def integers(name: str, ndim: int = 1) -> Any:
        return fn.external_source(name=name, dtype=types.INT32, ndim=ndim)

    # With dynamic execution, an output has its memory to itself as long as somebody refers to it.
    pipeline = Pipeline(
        batch_size=room, num_threads=threads, device_id=device_id, prefetch_queue_depth=1, exec_dynamic=True
    )
    # Images are stored upright (data/dataset.py). DALI reads orientations from metadata that Pillow takes for damaged.
    decoder: dict[str, Any] = {"device": "cpu", "output_type": types.RGB, "adjust_orientation": False}
    if device_id is not None:
        decoder |= {
            "device": "mixed",
            "jpeg_fancy_upsampling": True,  # as on a CPU
            # All or nothing: with a share, the decoder of an image and so its pixels would depend on the batch.
            "hw_decoder_load": 1.0,
            "affine": False,  # the pipelines of all processes would bind their threads to the same cores
        }
    with pipeline:
        images: Any = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
        if key.box:
            start, shape = integers("box_start"), integers("box_shape")
            images = fn.decoders.image_slice(images, start, shape, axes=[1, 0], **decoder)
        else:
            images = fn.decoders.image(images, **decoder)
        if key.resize:
            size = fn.external_source(name="size", dtype=types.FLOAT, ndim=1)
            images = fn.resize(images, size=size, interp_type=types.INTERP_LINEAR, antialias=key.antialias)
        if key.window:
            images = fn.slice(images, start=integers("window_start"), shape=integers("window_shape"), axes=[1, 0])
        images = fn.flip(images, horizontal=integers("flip", 0))
        if key.canvas:
            canvas, fill = integers("canvas"), [float(value) for value in key.fill]
            images = fn.slice(
                images, start=[0, 0], shape=canvas, axes=[1, 0], out_of_bounds_policy="pad", fill_values=fill
            )
        pipeline.set_outputs(images)
    return pipeline


def _inputs(key: Steps, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of a pipeline beside the encoded images."""
    inputs = {"flip": rows[:, FLIP]}
    if key.box:
        inputs |= {"box_start": rows[:, BOX][:, :2], "box_shape": rows[:, BOX][:, 2:]}
    if key.resize:
        inputs["size"] = rows[:, SIZE][:, ::-1].astype(np.float32)
    if key.window:
        inputs |= {"window_start": rows[:, WINDOW][:, :2], "window_shape": rows[:, WINDOW][:, 2:]}
    if key.canvas:
        inputs["canvas"] = rows[:, CANVAS]
    return {name: np.ascontiguousarray(values) for name, values in inputs.items()}


def _reason(error: RuntimeError) -> str:
    """Return the line of DALI's message that follows its traceback, or the first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    at = lines.index("encountered:") + 1 if "encountered:" in lines[:-1] else 0
    return lines[at].rstrip(" :")


class DeviceDecoder:
    """DALI's pipelines of a process, in two sets: two threads decode at a time, and others wait.

    While the device decodes the batch of one thread, the host prepares that of the other one.
    """

    def __init__(self, device_id: int | None, threads: int):
        """Build nothing yet.

        Args:
            device_id: number of the CUDA device; None for a CPU.
        """
        self._device_id, self._threads = device_id, threads
        # The set that was used last comes first: a single thread builds only one.
        self._sets: queue.LifoQueue[dict[Steps, Graph]] = queue.LifoQueue()
        for _ in range(AT_A_TIME):
            self._sets.put({})

    def decode(self, batch: Batch) -> tuple[Batch, dict[str, DeviceImages]]:
        """Return the ordinary arrays of a batch, and its packed ones decoded. Raises Failure."""
        arrays, packed = unpack(batch)
        graphs = self._sets.get()
        try:
            return arrays, {name: self._decode(graphs, name, value) for name, value in packed.items()}
        finally:
            self._sets.put(graphs)

    def check(self, samples: Sequence[PlannedSample]) -> None:
        """Raise Failure if DALI cannot decode what is pending in samples."""
        soundness.check(samples)
        self.decode(pack(samples, len(samples)))

    def _decode(self, graphs: dict[Steps, Graph], name: str, packed: Packed) -> DeviceImages:
        files, parts, order = packed.files(), [], []
        shapes = [packed.decoded.shape[1:]] if len(packed.decoded) else []
        for key, members in groups(packed.geometry):
            if key not in graphs or len(members) > graphs[key].room:
                graphs[key] = Graph(key, packed.order.size, self._threads, self._device_id)
            try:
                images = graphs[key].run([files[at] for at in members], packed.geometry[members])
            except Failure:
                graphs.pop(key)
                raise
            shapes += images.shape()
            parts.append(images)
            order += members
        check_shapes(name, [tuple(shape) for shape in shapes])
        position = np.arange(len(files) + len(packed.decoded))
        position[order] = np.arange(len(files))
        return DeviceImages(tuple(part.as_tensor() for part in parts), packed.decoded, position[packed.order])
