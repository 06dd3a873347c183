"""The first of two ranks, in one process: MindSpore's collectives are replaced, in pynative mode."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from mindspore import ops

from zoo.trainer.mindspore.world import World


@contextmanager
def two_ranks(other: float = 1.0) -> Iterator[World]:
    """Yield the world of the first rank. other: factor of its tensors that gives those of the other rank, in sums."""
    replaced = dict(AllReduce=lambda: lambda x: x * (1 + other), AllGather=lambda: lambda x: ops.cat((x, x)))
    with mock.patch.multiple(ops, **replaced):
        yield World(0, 2, "cpu", 0)
