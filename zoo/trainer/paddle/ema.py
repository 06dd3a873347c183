"""Moving average of weights and running statistics in Paddle; the formula is in zoo/optim/ema.py."""

from collections.abc import Mapping

import paddle
from paddle import nn

from zoo.optim.ema import WARMUP_FACTOR, WARMUP_OFFSET, Ema
from zoo.trainer.paddle import names
from zoo.trainer.paddle.shard import ParameterShard

BLOCK_SIZE = 1 << 24  # elements of a shard whose difference from its average is computed at once


class MovingAverage:
    """The averages of all tensors of a model and of the sharded parameters: those of the rows of this rank.

    Every operation rounds once, so that every framework computes the same bits, in fp32 and in fp64.

    Args:
        spec: decay and warm-up.
        model: whose tensors are to be the averages.
        tensors: what is averaged, by canonical name.
        shards: sharded parameters among them.
    """

    def __init__(
        self,
        spec: Ema,
        model: nn.Layer,
        tensors: Mapping[str, paddle.Tensor],
        shards: Mapping[str, ParameterShard],
    ):
        self.spec, self.sources, self.shards = spec, tensors, shards
        self.averages = names.named_tensors(model)
        self.averages.update((name, paddle.zeros_like(shard.values)) for name, shard in shards.items())
        for tensor in self.averages.values():
            tensor.stop_gradient = True

    @paddle.no_grad()
    def update(self, applied: paddle.Tensor, finite: paddle.Tensor) -> None:
        """Take the present weights into the average, on the device.

        Args:
            applied: number of the update without those that were skipped, from 1; ().
            finite: bool (); where it is False, nothing changes.
        """
        rate = self._rate(applied.astype(next(iter(self.averages.values())).dtype).reshape([1]))
        rate = paddle.where(finite, rate, paddle.zeros_like(rate))
        for name, average in self.averages.items():
            source = self.sources[name]
            if name in self.shards:
                rows = max(1, BLOCK_SIZE // source.shape[1])
                for first in range(0, len(source), rows):
                    part = slice(first, first + rows)
                    _move(average[part], source[part], rate)
            elif names.is_statistic(name):
                # The forward pass of a skipped update may have left statistics that are not finite.
                _move(average, paddle.where(finite, source, average), rate)
            else:
                _move(average, source, rate)

    def _rate(self, applied: paddle.Tensor) -> paddle.Tensor:
        """Return the share of the weights in update `applied`, (1,)."""
        last = paddle.full((1,), self.spec.last_rate, applied.dtype)
        if not self.spec.warmup:
            return last
        factor, offset = (paddle.full((1,), value, applied.dtype) for value in (WARMUP_FACTOR, WARMUP_OFFSET))
        return paddle.maximum(factor / (applied + offset), last)


def _move(average: paddle.Tensor, source: paddle.Tensor, rate: paddle.Tensor) -> None:
    """Move an average towards a tensor by a share of the way, in place."""
    average.subtract_((average - source).multiply_(rate))
