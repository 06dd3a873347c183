"""The first of two ranks, in one process: PyTorch's collectives are replaced."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
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


@contextmanager
def two_ranks(other: Callable[[np.ndarray], np.ndarray]) -> Iterator[World]:
    """Yield the world of the first rank. other: array of this rank in a collective -> that of the other rank."""

    def of_other(x):
        return torch.from_numpy(other(x.detach().numpy()))

    def all_reduce(x, op=dist.ReduceOp.SUM):
        x.copy_(x + of_other(x) if op == dist.ReduceOp.SUM else torch.maximum(x, of_other(x)))

    def all_gather(gathered, x, group=None):
        gathered.copy_(torch.cat([x, of_other(x)]))

    replaced = dict(_all_gather=all_gather, data_parallel=EqualGradients)
    with mock.patch.object(dist, "all_reduce", all_reduce), mock.patch.multiple(parallel, **replaced):
        yield World(0, 2, torch.device("cpu"))
