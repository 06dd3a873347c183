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
        elif flat.dtype == mstype.float64:
            flat = all_reduce(flat, self.world_size)
        else:
            flat = self.all_reduce(flat)
        return self.map(ops.partial(self.unflatten, flat), tensors, self.starts, self.lengths)

    def unflatten(self, flat, like, start, length):
        return flat[start : start + length].reshape(like.shape)


def flatten(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1)


def all_reduce(x: Tensor, world_size: int) -> Tensor:
    """Return the sum over ranks."""
    if world_size == 1:
        return x
    return _gather_fp64(x, world_size).sum(0) if x.dtype == mstype.float64 else ops.AllReduce()(x)


def all_gather(x: Tensor, world_size: int) -> Tensor:
    """Concatenate x of all ranks along the first axis: (n, ...) -> (world size * n, ...)."""
    if world_size == 1:
        return x
    if x.dtype == mstype.float64:
        return _gather_fp64(x, world_size).reshape((-1,) + x.shape[1:])
    return ops.AllGather()(x)


class SumOverRanks(nn.Cell):
    """A tensor -> its sum over ranks, also for the gradient, which is the sum of the ranks' gradients."""

    def __init__(self, world_size: int):
        super().__init__()
        self.world_size = world_size

    def construct(self, x: Tensor) -> Tensor:
        return all_reduce(x, self.world_size)

    def bprop(self, x: Tensor, out: Tensor, grad: Tensor) -> tuple[Tensor]:
        return (all_reduce(grad, self.world_size),)


def _gather_fp64(x: Tensor, world_size: int) -> Tensor:
    """Return x of all ranks, (world size, *x.shape). MindSpore's collectives on CPUs round fp64 to fp32.

    So each number travels as the sum of three fp32 numbers, which have more digits than it.
    """
    flat = x.reshape(-1)
    high = flat.astype(mstype.float32)
    rest = flat - high.astype(mstype.float64)
    middle = rest.astype(mstype.float32)
    low = (rest - middle.astype(mstype.float64)).astype(mstype.float32)
    gathered = ops.AllGather()(ops.stack((high, middle, low)))
    parts = gathered.astype(mstype.float64).reshape(world_size, 3, -1)
    return (parts[:, 0] + parts[:, 1] + parts[:, 2]).reshape((world_size,) + x.shape)


def all_reduce_mean(tensors: Sequence[Parameter], world_size: int) -> None:
    """Replace tensors by their means over ranks, in place, with one all-reduce."""
    for tensor, mean in zip(tensors, means_over_ranks([tensor.asnumpy() for tensor in tensors], world_size)):
        ops.assign(tensor, Tensor(mean))


def means_over_ranks(arrays: Sequence[np.ndarray], world_size: int) -> list[np.ndarray]:
    """Return the means of arrays of one type over ranks, with one all-reduce."""
    flat = np.concatenate([array.ravel() for array in arrays])
    flat = all_reduce(Tensor(flat), world_size).asnumpy() / flat.dtype.type(world_size)
    parts = np.split(flat, np.cumsum([array.size for array in arrays])[:-1])
    return [part.reshape(array.shape) for part, array in zip(parts, arrays)]
