"""The first of two ranks, in one process: MindSpore's collectives are replaced, in pynative mode."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
from mindspore import Tensor, nn, ops

from zoo.trainer.mindspore.world import World


@contextmanager
def two_ranks(other: Callable[[np.ndarray], np.ndarray]) -> Iterator[World]:
    """Yield the world of the first rank. other: array of this rank in a collective -> that of the other rank."""

    def of_other(x):
        return Tensor(other(x.asnumpy()))

    class Sum(nn.Cell):
        def construct(self, x):
            return x + of_other(x)

        def bprop(self, x, out, grad):
            return (grad + of_other(grad),)

    def all_reduce(op=ops.ReduceOp.SUM):
        return Sum() if op == ops.ReduceOp.SUM else lambda x: ops.maximum(x, of_other(x))

    replaced = dict(AllReduce=all_reduce, AllGather=lambda: lambda x: ops.cat((x, of_other(x))))
    with mock.patch.multiple(ops, **replaced):
        yield World(0, 2, "cpu", 0)
