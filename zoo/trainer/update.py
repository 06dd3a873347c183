"""Parts that the frameworks' updates share: loss scale, rounding of gradients, moving averages, blocks.

All of it is on the device, so that an overflow is handled without waiting for it.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.optim.ema import Ema

# A dynamic loss scale, as in torch.amp.GradScaler, and the names of its state in a state dict.

INITIAL_SCALE = 65536.0  # optim.initial_loss_scale replaces it
GROWTH_FACTOR = 2.0  # after GROWTH_INTERVAL finite updates in a row
BACKOFF_FACTOR = 0.5  # after an update that was not finite
GROWTH_INTERVAL = 2000.0

SCALE_KEY = "scaler/scale"
GOOD_STEPS_KEY = "scaler/good"  # finite updates since the scale last changed
SKIPPED_KEY = "scaler/skipped"
KEYS = (SCALE_KEY, GOOD_STEPS_KEY, SKIPPED_KEY)


def updated(ops: Any, state: tuple[Any, ...], finite: Any, dynamic: bool) -> tuple[Any, ...]:
    """Return the state after an update.

    Args:
        state: loss scale, finite updates since it last changed, updates skipped so far, and skipped last in a row.
        finite: whether the gradient was finite, bool ().
        dynamic: whether the scale changes.
    """
    scale, good, skipped, consecutive = state
    overflow = 1 - ops.astype(finite, scale.dtype)
    skipped, consecutive = skipped + overflow, (consecutive + 1) * overflow
    if dynamic:
        good = (good + 1) * (1 - overflow)
        grows = good >= GROWTH_INTERVAL
        grown = ops.where(grows, scale * GROWTH_FACTOR, scale)
        scale, good = ops.where(finite, grown, scale * BACKOFF_FACTOR), ops.where(grows, ops.zeros_like(good), good)
    return scale, good, skipped, consecutive


class LossScaler:
    """Loss scale and counters of updates, as fp32 tensors ().

    Args:
        dynamic: adapt the scale; else it never changes.

    Attributes:
        skipped: updates skipped so far.
        consecutive_skips: the last updates that were skipped in a row.
    """

    def __init__(self, ops: Any, tensor: Callable[[float], Any], dynamic: bool, initial: float):
        self.ops, self.tensor, self.dynamic = ops, tensor, dynamic
        self.scale, self.good_steps, self.skipped, self.consecutive_skips = map(tensor, (initial, 0.0, 0.0, 0.0))

    def update(self, finite: Any) -> None:
        """Count an update and adapt a dynamic scale; finite: bool (), whether its gradient was finite."""
        state = self.scale, self.good_steps, self.skipped, self.consecutive_skips
        state = updated(self.ops, state, finite, self.dynamic)
        self.scale, self.good_steps, self.skipped, self.consecutive_skips = state

    def state_dict(self) -> dict[str, Any]:
        return {SCALE_KEY: self.scale, GOOD_STEPS_KEY: self.good_steps, SKIPPED_KEY: self.skipped}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        values = {**self.state_dict(), **{key: self.tensor(float(state[key])) for key in KEYS if key in state}}
        self.scale, self.good_steps, self.skipped = (values[key] for key in KEYS)


# Rounding of gradients in exact runs, by which the frameworks' updates become equal bit by bit. In fp64, gradients of
# two frameworks differ by 1e-16 to 1e-13 of a tensor's largest element, because they sum in other orders. Differences
# of weights grow from update to update. So gradients are rounded to multiples of a power of two, about 2**-16 of the
# tensor's largest element: the results differ only if a number lies within 1e-13 of the middle of two multiples.
# Everything after it is a product or a sum of single elements, which IEEE 754 defines bit by bit.
# (x + c) - c is x rounded to a multiple of the spacing of the fp64 numbers at c; only the exponent of c matters.
FACTOR = 1.5 * 2.0**36  # c as a multiple of the largest element: fp64 numbers at c have a spacing of 2**-52 * c
FLOOR = 2.0**-20  # of the largest element of all tensors: the least that c is a multiple of


def round_gradients(ops: Any, gradients: Sequence[Any], shard_gradients: Sequence[Any] = ()) -> list[Any]:
    """Return rounded gradients, those of shards last.

    A gradient that is 0 but for noise, such as that of a bias before a normalization, becomes 0.

    Args:
        gradients: float64, of the model; the largest element of all is taken of these alone, since all ranks have them.
        shard_gradients: float64, of sharded parameters: this rank's rows.
    """
    floor = floor_of(ops, [ops.largest(gradient) for gradient in gradients])
    return [rounded(ops, gradient, floor) for gradient in (*gradients, *shard_gradients)]


def floor_of(ops: Any, largest: Sequence[Any]) -> Any:
    stacked = ops.stack(largest)
    return ops.number(FLOOR, stacked.dtype) * stacked.max()


def rounded(ops: Any, gradient: Any, floor: Any) -> Any:
    c = ops.number(FACTOR, gradient.dtype) * ops.maximum(ops.largest(gradient), floor)
    return (gradient + c) - c


BLOCK_SIZE = 1 << 24  # elements of a shard whose difference from its average is computed at once


class MovingAverage:
    """The averages of all tensors of a model, and of this rank's rows of the sharded parameters, by zoo/optim/ema.py.

    In PyTorch and Paddle; MindSpore's is a graph.

    Args:
        averages: of the model, by canonical name: the tensors of another model.
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
        self.ops = ops
        self.spec = spec
        self.sources = sources
        self.statistics = statistics
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
        rate = self.spec.rate(ops, ops.astype(applied, sources[names[0]].dtype))
        rate = ops.where(finite, rate, ops.zeros_like(rate))
        ops.move_([self.averages[name] for name in names], [sources[name] for name in names], rate)
        for name in self.shards:
            rows = max(1, BLOCK_SIZE // sources[name].shape[1])
            for first in range(0, len(sources[name]), rows):
                average, source = (ops.row_view(each[name], first, rows) for each in (self.averages, sources))
                ops.move_([average], [source], rate)


def blocks(shape: Sequence[int], block_size: int) -> Iterator[tuple[slice, ...]]:
    """Yield the slices of (N, C, H, ...) into blocks of about `block_size` elements.

    Copies of a block in a wider type stay small. Blocks hold whole samples; larger samples are also cut along H.
    """
    sample_size = math.prod(shape[1:])
    samples, rows = max(1, block_size // sample_size), max(1, shape[2] * block_size // sample_size)
    for first in range(0, shape[0], samples):
        for top in range(0, shape[2], rows):
            yield slice(first, first + samples), slice(None), slice(top, top + rows)
