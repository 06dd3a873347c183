"""Copies of batches to the device, for which a GPU does not make the host wait."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from zoo.data.loaders.dali_graph import DeviceImages
from zoo.trainer.protocol import DeviceBatch


class Copies:
    """Copies to a device. Not run on a GPU so far.

    Paddle copies behind the operations that the GPU has been given, from page-locked memory without waiting. This
    memory belongs to the tensor as its attribute `source`; both must be kept until the GPU has come that far.

    Args:
        place: of the device.
        is_gpu: whether the device is a GPU of NVIDIA.

    Attributes:
        kept: batches and, for each of them, the event behind the operations that need them.
    """

    def __init__(self, place: Any, is_gpu: bool):
        self.place, self.is_gpu = place, is_gpu
        self.kept: deque[tuple[Any, Sequence[DeviceBatch]]] = deque()

    def copy(self, array: np.ndarray) -> paddle.Tensor:
        """Return an array as a tensor on the device."""
        if not self.is_gpu:
            return paddle.to_tensor(array, place=self.place)
        source = paddle.to_tensor(array, place=paddle.CUDAPinnedPlace())
        tensor: Any = source.cuda(self.place.get_device_id(), blocking=False)
        tensor.source = source
        return tensor

    def keep(self, batches: Sequence[DeviceBatch]) -> None:
        """Keep batches until the GPU has done what it has been given so far; drop earlier ones of which it has."""
        if not self.is_gpu:
            return
        event: Any = paddle.device.cuda.Event()
        event.record()
        self.kept.append((event, batches))
        while self.kept and self.kept[0][0].query():
            self.kept.popleft()


def assemble(images: DeviceImages, place: Any) -> paddle.Tensor:
    """Return images in the order of their rows: uint8 (*images.order.shape, H, W, 3).

    Without a copy where DALI decoded all of them: its memory is free for other images when the tensor is dropped, so
    the trainer keeps it until the device has read it. Other images are put in order
    on the host, since Paddle gathers no bytes on a GPU.
    """
    if not images.is_whole:
        return paddle.to_tensor(images.on_host(), place=place)
    tensor = paddle.from_dlpack(images.decoded[0])
    return tensor.reshape([*images.order.shape, *tensor.shape[1:]])
