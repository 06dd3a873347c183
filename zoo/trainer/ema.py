"""The moving averages of a trainer's tensors in PyTorch and Paddle; the formula is in zoo/optim/ema.py."""

from collections.abc import Collection, Mapping
from typing import Any

from zoo.optim.ema import Ema

BLOCK_SIZE = 1 << 24  # elements of a shard whose difference from its average is computed at once


class MovingAverage:
    """The averages of all tensors of a model and of the sharded parameters: those of the rows of this rank.

    Args:
        ops: of the framework.
        spec: decay and warm-up.
        averages: of the model, by canonical name: the tensors of another model.
        sources: what is averaged, likewise, and the sharded parameters.
        statistics: names of running statistics.
    """

    def __init__(
        self,
        ops: Any,
        spec: Ema,
        averages: Mapping[str, Any],
        sources: Mapping[str, Any],
        statistics: Collection[str],
    ):
        self.ops, self.spec, self.sources, self.statistics = ops, spec, sources, statistics
        self.shards = [name for name in sources if name not in averages]
        self.averages = {**averages, **{name: ops.zeros_like(sources[name]) for name in self.shards}}

    def update(self, applied: Any, finite: Any) -> None:
        """Take the present weights into the average, on the device; called without gradients.

        Args:
            applied: number of the update without those that were skipped, from 1; ().
            finite: bool (); where it is False, nothing changes.
        """
        ops, sources = self.ops, dict(self.sources)
        for name in self.statistics:  # the forward pass of a skipped update may have left some that are not finite
            sources[name] = ops.where(finite, sources[name], self.averages[name])
        names = [name for name in self.averages if name not in self.shards]
        rate = self.spec.rate(ops, ops.cast(applied, sources[names[0]].dtype))
        rate = ops.where(finite, rate, ops.zeros_like(rate))
        ops.move_([self.averages[name] for name in names], [sources[name] for name in names], rate)
        for name in self.shards:
            rows = max(1, BLOCK_SIZE // sources[name].shape[1])
            for first in range(0, len(sources[name]), rows):
                part = slice(first, first + rows)
                ops.move_([self.averages[name][part]], [sources[name][part]], rate)
