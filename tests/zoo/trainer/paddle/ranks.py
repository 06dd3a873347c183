"""The first of two ranks, in one process: Paddle's collectives are replaced."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import paddle
import paddle.distributed as dist

from tests.zoo.trainer.paddle.adapter import WORLD
from zoo.trainer.paddle.world import World


class EqualGradients:
    """A model as DataParallel returns it, for gradients that are the same on all ranks: so is their mean.

    `reduced` tells of each forward pass whether gradients of its backward pass would be all-reduced.
    """

    def __init__(self, model):
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
        return paddle.to_tensor(other(x.numpy()))

    def all_reduce(x, op=dist.ReduceOp.SUM):
        paddle.assign(x + of_other(x) if op == dist.ReduceOp.SUM else paddle.maximum(x, of_other(x)), x)

    def all_gather(parts, x):
        parts += [x, of_other(x)]

    replaced = dict(get_world_size=lambda: 2, get_rank=lambda: 0, all_reduce=all_reduce, all_gather=all_gather)
    with mock.patch.multiple(dist, **replaced), mock.patch.object(paddle, "DataParallel", EqualGradients):
        yield World(0, 2, WORLD.name, WORLD.place)
