"""Two ranks that hold the same samples, in one process: PyTorch's collectives are replaced."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import torch
import torch.distributed as dist

from zoo.trainer.torch import parallel
from zoo.trainer.torch.world import World


class EqualGradients:
    """A model as DistributedDataParallel returns it, for gradients that are the same on all ranks: so is their mean."""

    def __init__(self, model, fp16_allreduce):
        self.model = model

    def __call__(self, *inputs):
        return self.model(*inputs)

    def no_sync(self):
        return nullcontext()


def all_reduce(x, op=dist.ReduceOp.SUM):
    if op == dist.ReduceOp.SUM:
        x.mul_(2)


def all_gather(parts, x, group=None):
    for part in parts:
        part.copy_(x)


@contextmanager
def two_equal_ranks() -> Iterator[World]:
    """Yield the world of the first rank."""
    replaced = dict(all_reduce=all_reduce, all_gather=all_gather)
    with mock.patch.multiple(dist, **replaced), mock.patch.object(parallel, "data_parallel", EqualGradients):
        yield World(0, 2, torch.device("cpu"))
