"""Collectives of MindSpore: gradients, running statistics and embeddings over all ranks, in the graph."""

from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype


class AllReduceMean(nn.Cell):
    """A tuple of tensors -> their means over ranks, with one all-reduce of all of them.

    Args:
        world_size: number of ranks.
        shapes: of the tensors.
        fp16_allreduce: all-reduce in fp16.
    """

    def __init__(self, world_size: int, shapes: Sequence[Sequence[int]], fp16_allreduce: bool):
        super().__init__()
        self.world_size, self.fp16_allreduce = world_size, fp16_allreduce
        self.lengths = tuple(int(np.prod(shape)) for shape in shapes)
        self.starts = tuple(int(start) for start in np.cumsum((0, *self.lengths[:-1])))
        self.map, self.all_reduce, self.concat = ops.HyperMap(), ops.AllReduce(), ops.Concat()

    def construct(self, tensors):
        flat = self.concat(self.map(flatten, tensors)) / self.world_size
        if self.fp16_allreduce:
            flat = self.all_reduce(flat.astype(mstype.float16)).astype(mstype.float32)
        else:
            flat = self.all_reduce(flat)
        return self.map(ops.partial(self.unflatten, flat), tensors, self.starts, self.lengths)

    def unflatten(self, flat, like, start, length):
        return flat[start : start + length].reshape(like.shape)


def flatten(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1)


def all_reduce(x: Tensor, world_size: int) -> Tensor:
    """Return the sum over ranks."""
    return ops.AllReduce()(x) if world_size > 1 else x


def all_gather(x: Tensor, world_size: int) -> Tensor:
    """Concatenate x of all ranks along the first axis: (n, ...) -> (world size * n, ...)."""
    return ops.AllGather()(x) if world_size > 1 else x


def all_reduce_mean(tensors: Sequence[Parameter], world_size: int) -> None:
    """Replace tensors by their means over ranks, in place, with one all-reduce."""
    for tensor, mean in zip(tensors, means_over_ranks([tensor.asnumpy() for tensor in tensors], world_size)):
        ops.assign(tensor, Tensor(mean))


def means_over_ranks(arrays: Sequence[np.ndarray], world_size: int) -> list[np.ndarray]:
    """Return the means of arrays of one type over ranks, with one all-reduce."""
    flat = np.concatenate([array.ravel() for array in arrays])
    flat = ops.AllReduce()(Tensor(flat)).asnumpy() / flat.dtype.type(world_size)
    parts = np.split(flat, np.cumsum([array.size for array in arrays])[:-1])
    return [part.reshape(array.shape) for part, array in zip(parts, arrays)]
