"""Collectives of Paddle: gradients, running statistics and embeddings over all ranks."""

from collections.abc import Callable

import paddle
import paddle.distributed as dist
from paddle import nn


class ForwardModule(nn.Layer):
    """Model whose forward pass is a function of a list of tensors; DataParallel wraps it.

    Args:
        model: owner of the parameters.
        function: its forward pass, perhaps compiled.
    """

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
