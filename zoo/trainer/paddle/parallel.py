"""Several processes in PaddlePaddle: gradients and running statistics over all ranks."""

from collections.abc import Callable

import paddle
import paddle.distributed as dist
from paddle import nn


class ForwardModule(nn.Layer):
    """A model whose forward pass is the given function of a list of tensors: what DataParallel wraps."""

    def __init__(self, model: nn.Layer, function: Callable):
        super().__init__()
        self.model, self.function = model, function

    def forward(self, *inputs):
        return self.function(list(inputs))


@paddle.no_grad()
def average(tensors: list[paddle.Tensor]) -> None:
    """Give every rank the mean over ranks, in place."""
    flat = paddle.concat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    _put_back(tensors, flat / dist.get_world_size())


@paddle.no_grad()
def average_as_fp16(gradients: list[paddle.Tensor]) -> None:
    """The mean over ranks in place, by way of fp16, after the backward pass."""
    flat = (paddle.concat([gradient.flatten() for gradient in gradients]) / dist.get_world_size()).astype("float16")
    dist.all_reduce(flat)
    _put_back(gradients, flat.astype("float32"))


def _put_back(tensors: list[paddle.Tensor], flat: paddle.Tensor) -> None:
    for tensor, part in zip(tensors, paddle.split(flat, [tensor.size for tensor in tensors])):
        paddle.assign(part.reshape(tensor.shape), tensor)


def total(x: paddle.Tensor) -> paddle.Tensor:
    """The sum over ranks."""
    found = x.clone()
    if dist.get_world_size() > 1:
        dist.all_reduce(found)
    return found
