"""The first of two ranks, in one process: PyTorch's collectives are replaced."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist

from zoo.trainer.torch import parallel
from zoo.trainer.torch.world import World


class EqualGradients:
    """A model as DistributedDataParallel returns it, for gradients that are the same on all ranks: so is their mean.

    `reduced` tells of each forward pass whether gradients of its backward pass would be all-reduced.
    """

    def __init__(self, model, fp16_allreduce):
        self.model, self.reduces = model, True
        self.reduced: list[bool] = []

    def __call__(self, *inputs):
        self.reduced.append(self.reduces)
        return self.model(*inputs)

    @contextmanager
    def no_sync(self):
        self.reduces = False
        yield
        self.reduces = True


def all_gather(parts, x, group=None):
    for part in parts:
        part.copy_(x)


@contextmanager
def two_ranks(other: float = 1.0) -> Iterator[World]:
    """Yield the world of the first rank. other: factor of its tensors that gives those of the other rank, in sums."""

    def all_reduce(x, op=dist.ReduceOp.SUM):
        if op == dist.ReduceOp.SUM:
            x.mul_(1 + other)

    replaced = dict(all_reduce=all_reduce, all_gather=all_gather)
    with mock.patch.multiple(dist, **replaced), mock.patch.object(parallel, "data_parallel", EqualGradients):
        yield World(0, 2, torch.device("cpu"))
