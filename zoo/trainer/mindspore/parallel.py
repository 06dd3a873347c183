"""Several processes in MindSpore: gradients, batch statistics and running statistics over all ranks, in the graph."""

from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype


class Mean(nn.Cell):
    """A tuple of tensors -> their means over ranks, by one all-reduce of all in a row.

    fp16_allreduce: they travel as fp16.
    """

    def __init__(self, size: int, shapes: Sequence[Sequence[int]], fp16_allreduce: bool):
        super().__init__()
        self.size, self.fp16_allreduce = size, fp16_allreduce
        self.lengths = tuple(int(np.prod(shape)) for shape in shapes)
        self.starts = tuple(int(start) for start in np.cumsum((0,) + self.lengths[:-1]))
        self.map, self.all_reduce, self.concat = ops.HyperMap(), ops.AllReduce(), ops.Concat()

    def construct(self, tensors):
        row = self.concat(self.map(flat, tensors)) / self.size
        if self.fp16_allreduce:
            row = self.all_reduce(row.astype(mstype.float16)).astype(mstype.float32)
        else:
            row = self.all_reduce(row)
        return self.map(ops.partial(self.cut, row), tensors, self.starts, self.lengths)

    def cut(self, row, like, start, length):
        return row[start : start + length].reshape(like.shape)


def flat(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1)


def total(x: Tensor, size: int) -> Tensor:
    """The sum over ranks."""
    return ops.AllReduce()(x) if size > 1 else x


def average(tensors: Sequence[Parameter], size: int) -> None:
    """Give every rank the mean over ranks, in place."""
    flat = np.concatenate([tensor.asnumpy().ravel() for tensor in tensors])
    flat = ops.AllReduce()(Tensor(flat)).asnumpy() / np.float32(size)
    start = 0
    for tensor in tensors:
        ops.assign(tensor, Tensor(flat[start : start + tensor.size].reshape(tensor.shape)))
        start += tensor.size


class SyncBatchNorm2d(nn.BatchNorm2d):
    """What nn.SyncBatchNorm does, which MindSpore has for GPUs and NPUs alone.

    On CPUs in float64, so that the result does not depend on how the samples are spread over ranks.
    """

    def construct(self, x: Tensor) -> Tensor:
        axes = (0, 2, 3)
        count = x.size // x.shape[1] * self.ranks  # every rank has as many
        wide = x.astype(self.wide)
        mean = self._total(wide.sum(axes)) / count
        centred = wide - mean.reshape(1, -1, 1, 1)
        variance = self._total((centred * centred).sum(axes)) / count
        keep = 1 - self.momentum  # MindSpore stores the share of the new
        ops.assign(self.moving_mean, keep * self.moving_mean + (1 - keep) * mean.astype(mstype.float32))
        unbiased = (variance * (count / max(count - 1, 1))).astype(mstype.float32)
        ops.assign(self.moving_variance, keep * self.moving_variance + (1 - keep) * unbiased)
        factor = self.gamma * ops.rsqrt(variance + self.eps)
        return (centred * factor.reshape(1, -1, 1, 1) + self.beta.reshape(1, -1, 1, 1)).astype(x.dtype)

    def _total(self, x: Tensor) -> Tensor:
        return self.all_reduce(x) if self.ranks > 1 else x


def convert_sync_batchnorm(model: nn.Cell, size: int, on_cpu: bool) -> None:
    """Let the batch normalisations of a model that trains take their statistics over all ranks."""
    for _, cell in model.cells_and_names():
        if type(cell) is nn.BatchNorm2d and cell.use_batch_statistics is not False:
            cell.__class__ = SyncBatchNorm2d
            cell.ranks, cell.all_reduce = size, ops.AllReduce() if size > 1 else None
            cell.wide = mstype.float64 if on_cpu else mstype.float32
