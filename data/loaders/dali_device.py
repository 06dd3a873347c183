"""Decoding of packed batches by NVIDIA DALI in the training process, on a GPU.

Without a device, the same code runs with DALI's operators for a CPU and gives the pixels that DALI gives in worker
processes.
"""

import queue
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.batch import Batch, check_shapes
from zoo.data.dataset import PlannedSample
from zoo.data.loaders import packing, soundness
from zoo.data.loaders.dali_graph import Failure, Graph, Steps, groups
from zoo.data.loaders.packing import Packed

AT_A_TIME = 2  # batches


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
    """DALI's pipelines of a process, in two sets: two threads decode at a time, and others wait.

    While the device decodes the batch of one thread, the host prepares that of the other one.
    """

    def __init__(self, device_id: int | None, threads: int):
        """Build nothing yet.

        Args:
            device_id: number of the CUDA device; None for a CPU.
            threads: of DALI.
        """
        self._device_id, self._threads = device_id, threads
        # The set that was used last comes first: a single thread builds only one.
        self._sets: queue.LifoQueue[dict[Steps, Graph]] = queue.LifoQueue()
        for _ in range(AT_A_TIME):
            self._sets.put({})

    def decode(self, batch: Batch) -> tuple[Batch, dict[str, DeviceImages]]:
        """Return the ordinary arrays of a batch, and its packed ones decoded.

        Raises:
            Failure: DALI cannot decode one of the images.
            UserError: images of the batch have different sizes.
        """
        arrays, packed = packing.unpack(batch)
        graphs = self._sets.get()
        try:
            return arrays, {name: self._decode(graphs, name, value) for name, value in packed.items()}
        finally:
            self._sets.put(graphs)

    def check(self, samples: Sequence[PlannedSample]) -> None:
        """Raise Failure if DALI cannot decode what is pending in samples."""
        soundness.check(samples)
        self.decode(packing.pack(samples, len(samples)))

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
