"""Decoding of packed batches by NVIDIA DALI in the training process, on a GPU.

Without a device, the same code runs with DALI's operators for a CPU and gives the pixels that DALI gives in worker
processes.
"""

import threading
from typing import Any, NamedTuple

import numpy as np

from data.batch import Batch, check_shapes
from data.loaders import packing
from data.loaders.dali_graph import Failure, Graph, Steps, groups
from data.loaders.packing import Packed


class DeviceImages(NamedTuple):
    """An array of images, uint8 (*order.shape, H, W, 3), in parts that are on the device or have to be copied there.

    Attributes:
        decoded: DALI's tensors (images, H, W, 3), complete, in memory that nobody else writes to. They support DLPack.
        rest: images on the host (images, H, W, 3), perhaps none.
        order: index of each row's image among those of all parts, one part after the other.
    """

    decoded: tuple[Any, ...]
    rest: np.ndarray
    order: np.ndarray

    @property
    def is_whole(self) -> bool:
        """Whether the only part is the array."""
        order = self.order.ravel()
        return len(self.decoded) == 1 and not len(self.rest) and np.array_equal(order, np.arange(len(order)))

    def on_host(self) -> np.ndarray:
        """Return the array as a copy on the host."""
        parts = [np.array(part.as_cpu()) for part in self.decoded]
        return np.concatenate([*parts, self.rest] if len(self.rest) else parts)[self.order]


class DeviceDecoder:
    """DALI's pipelines of a process. Threads take turns: the one that prefetches and the one of an evaluation."""

    def __init__(self, device_id: int | None, threads: int):
        """Build nothing yet.

        Args:
            device_id: number of the CUDA device; None for a CPU.
            threads: of DALI.
        """
        self._device_id, self._threads = device_id, threads
        self._graphs: dict[Steps, Graph] = {}
        self._lock = threading.Lock()

    def decode(self, batch: Batch) -> tuple[Batch, dict[str, DeviceImages]]:
        """Return the ordinary arrays of a batch, and its packed ones decoded.

        Raises:
            Failure: DALI cannot decode one of the images.
            UserError: images of the batch have different sizes.
        """
        arrays, packed = packing.unpack(batch)
        with self._lock:
            return arrays, {name: self._decode(name, value) for name, value in packed.items()}

    def _decode(self, name: str, packed: Packed) -> DeviceImages:
        files, parts, order = packed.files(), [], []
        shapes = [packed.decoded.shape[1:]] if len(packed.decoded) else []
        for key, members in groups(packed.geometry):
            images = self._run(key, [files[at] for at in members], packed.geometry[members], packed.order.size)
            shapes += images.shape()
            parts.append(images)
            order += members
        check_shapes(name, [tuple(shape) for shape in shapes])
        position = np.arange(len(files) + len(packed.decoded))
        position[order] = np.arange(len(files))
        return DeviceImages(tuple(part.as_tensor() for part in parts), packed.decoded, position[packed.order])

    def _run(self, key: Steps, files: list[np.ndarray], rows: np.ndarray, room: int) -> Any:
        graph = self._graphs.get(key)
        if graph is None or len(files) > graph.room:
            graph = self._graphs[key] = Graph(key, room, self._threads, self._device_id)
        try:
            return graph.run(files, rows)
        except Failure:
            self._graphs.pop(key)
            raise
