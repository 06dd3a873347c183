"""Collectives of Paddle, and copies of batches to the device, for which a GPU does not make the host wait."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

from zoo.data.loaders.packed import DeviceImages
from zoo.trainer.protocol import DeviceBatch


class ForwardModule(nn.Layer):
    """Model whose forward pass is a function of a list of tensors; DataParallel wraps it."""

    def __init__(self, model: nn.Layer, function: Callable):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *inputs):
        return self.function(list(inputs))


def all_reduce(x: paddle.Tensor, op=dist.ReduceOp.SUM) -> paddle.Tensor:
    """Return x after reducing it over ranks in place."""
    if dist.get_world_size() > 1:
        dist.all_reduce(x, op)
    return x


def all_gather(x: paddle.Tensor) -> paddle.Tensor:
    """Concatenate x of all ranks along the first axis: (n, ...) -> (world size * n, ...)."""
    if dist.get_world_size() == 1:
        return x
    shards: list[paddle.Tensor] = []
    dist.all_gather(shards, x)
    return paddle.concat(shards)


@paddle.no_grad()
def all_reduce_mean(tensors: list[paddle.Tensor]) -> None:
    """Replace tensors by their means over ranks, in place, with one all-reduce."""
    flat = paddle.concat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    _unflatten_into(tensors, flat / dist.get_world_size())


@paddle.no_grad()
def all_reduce_mean_fp16(gradients: list[paddle.Tensor]) -> None:
    """Replace gradients by their means over ranks, in place, with one all-reduce in fp16."""
    flat = (paddle.concat([gradient.flatten() for gradient in gradients]) / dist.get_world_size()).astype("float16")
    dist.all_reduce(flat)
    _unflatten_into(gradients, flat.astype("float32"))


def _unflatten_into(tensors: list[paddle.Tensor], flat: paddle.Tensor) -> None:
    for tensor, part in zip(tensors, paddle.split(flat, [tensor.size for tensor in tensors])):
        paddle.assign(part.reshape(tensor.shape), tensor)


class Copies:
    """Copies to a device. Not run on a GPU so far.

    Paddle copies behind the operations that the GPU has been given, from page-locked memory without waiting. This
    memory belongs to the tensor as its attribute `source`; both must be kept until the GPU has come that far.

    Args:
        is_gpu: whether the device is a GPU of NVIDIA.

    Attributes:
        kept: batches and, for each of them, the event behind the operations that need them.
    """

    def __init__(self, place: Any, is_gpu: bool):
        self.place, self.is_gpu = place, is_gpu
        self.kept: deque[tuple[Any, Sequence[DeviceBatch]]] = deque()

    def copy(self, array: np.ndarray) -> paddle.Tensor:
        if not self.is_gpu:
            return paddle.to_tensor(array, place=self.place)
        index = self.place.get_device_id()
        paddle.set_device(f"gpu:{index}")  # else the thread that reads batches opens the first GPU, too
        source = paddle.to_tensor(array, place=paddle.CUDAPinnedPlace())
        tensor: Any = source.cuda(index, blocking=False)
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
