"""Two ranks that hold the same samples, in one process: Paddle's collectives are replaced."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import paddle
import paddle.distributed as dist

from tests.zoo.trainer.paddle.adapter import WORLD
from zoo.trainer.paddle.world import World


class EqualGradients:
    """A model as DataParallel returns it, for gradients that are the same on all ranks: so is their mean."""

    def __init__(self, model):
        self.model = model

    def __call__(self, *inputs):
        return self.model(*inputs)

    def no_sync(self):
        return nullcontext()


def all_reduce(x, op=dist.ReduceOp.SUM):
    if op == dist.ReduceOp.SUM:
        paddle.assign(x + x, x)


def all_gather(parts, x):
    parts += [x, x]


@contextmanager
def two_equal_ranks() -> Iterator[World]:
    """Yield the world of the first rank."""
    replaced = dict(get_world_size=lambda: 2, get_rank=lambda: 0, all_reduce=all_reduce, all_gather=all_gather)
    with mock.patch.multiple(dist, **replaced), mock.patch.object(paddle, "DataParallel", EqualGradients):
        yield World(0, 2, WORLD.name, WORLD.place)
