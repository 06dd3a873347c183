"""Exponential moving average of weights and running statistics: a model of its own, evaluated and saved beside the raw.

After every update that is applied, the t-th, counted from 1:

    rate = max(1 - decay, 9 / (10 + t))         with the warm-up, else 1 - decay
    average = average - rate * (average - weight)

It is TensorFlow's tf.train.ExponentialMovingAverage, whose warm-up is decay = min(decay, (1 + t) / (10 + t)): early
weights, which are far from the last ones, fade within the first updates. Averages of weights are due to Polyak and
Juditsky (1992). An update that is skipped leaves the average as it is. Running statistics are averaged like weights, as
timm's ModelEmaV3 and the references of torchvision do it; then they fit the averaged weights as well as possible
without another pass over the data. What never changes, such as a frozen parameter, is its own average to the last bit.
Every operation rounds once, so that every framework computes the same bits, in fp32 and in fp64.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Ema:
    """Specification of an average.

    Attributes:
        decay: share of the average that an update keeps.
        warmup: whether it keeps less in the first updates.
    """

    decay: float
    warmup: bool = True

    @cached_property
    def last_rate(self) -> float:
        """The share of the weights in an update behind the warm-up."""
        return 1 - self.decay

    def rate(self, ops: Any, applied: Any) -> Any:
        """Return the share of the weights in update `applied`, (), counted from 1 without those that were skipped."""
        return rate(ops, applied, self.last_rate, self.warmup)


def rate(ops: Any, applied: Any, last_rate: float, warmup: bool) -> Any:
    """Return the share of the weights in an update, given that behind the warm-up."""
    dtype, ones = applied.dtype, ops.ones_like(applied)
    last = ones * ops.number(last_rate, dtype)
    if not warmup:
        return last
    # Not a number over a tensor, which PyTorch computes as number * (1 / x).
    return ops.maximum(ones * ops.number(9.0, dtype) / (applied + ops.number(10.0, dtype)), last)


def moved(average: Any, source: Any, rate: Any) -> Any:
    """Return an average that has moved towards a tensor by a share of the way."""
    return average - rate * (average - source)
