"""Collectives of MindSpore: gradients, running statistics and embeddings over all ranks, in the graph."""

from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

BUCKET_BYTES = 25 << 20  # of gradients that one all-reduce adds up


class AllReduceMean(nn.Cell):
    """A tuple of gradients -> their means over ranks.

    In buckets, whose all-reduces depend on their own gradients alone: the first one, that of the last layers, can run
    while the backward pass computes the gradients of the layers before.

    Args:
        fp16_allreduce: all-reduce in fp16.
        bucket_bytes: least size of a bucket in fp32, apart from that of the first layers.
    """

    def __init__(
        self,
        world_size: int,
        shapes: Sequence[Sequence[int]],
        fp16_allreduce: bool,
        bucket_bytes: int = BUCKET_BYTES,
    ):
        super().__init__()
        self.world_size, self.fp16_allreduce = world_size, fp16_allreduce
        self.lengths = tuple(int(np.prod(shape)) for shape in shapes)
        self.buckets = split_into_buckets(self.lengths, bucket_bytes // 4)
        self.starts = tuple(
            int(start)
            for first, last in reversed(self.buckets)
            for start in np.cumsum((0, *self.lengths[first : last - 1]))
        )
        self.map, self.all_reduce, self.concat = ops.HyperMap(), ops.AllReduce(), ops.Concat()

    def construct(self, tensors):
        means, previous = (), None
        for first, last in self.buckets:
            bucket = tensors[first:last]
            flat = self.concat(self.map(flatten, bucket)) / self.world_size
            if previous is not None:  # all ranks must run their collectives in the same order
                flat = ops.depend(flat, previous)
            flat = previous = self.sum_over_ranks(flat)
            # Not a partial function of `flat`: for two buckets of equal shapes, the compiler would take the same one.
            flats, ranges = (flat,) * (last - first), (self.starts[first:last], self.lengths[first:last])
            means = self.map(self.unflatten, flats, bucket, *ranges) + means
        return means

    def sum_over_ranks(self, flat):
        if self.fp16_allreduce:
            return self.all_reduce(flat.astype(mstype.float16)).astype(mstype.float32)
        if flat.dtype == mstype.float64:
            return all_reduce(flat, self.world_size)
        return self.all_reduce(flat)

    def unflatten(self, flat, like, start, length):
        return flat[start : start + length].reshape(like.shape)


def split_into_buckets(lengths: Sequence[int], bucket_length: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges [first, last) of the buckets, from the last one to the first.

    Args:
        bucket_length: elements after which a bucket is complete; the one in front may have fewer.
    """
    buckets, last, total = [], len(lengths), 0
    for first in reversed(range(len(lengths))):
        total += lengths[first]
        if total >= bucket_length or first == 0:
            buckets.append((first, last))
            last, total = first, 0
    return tuple(buckets)


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
    flat = np.concatenate([array.ravel() for array in arrays])
    flat = all_reduce(Tensor(flat), world_size).asnumpy() / flat.dtype.type(world_size)
    parts = np.split(flat, np.cumsum([array.size for array in arrays])[:-1])
    return [part.reshape(array.shape) for part, array in zip(parts, arrays)]
