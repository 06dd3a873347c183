"""Moving average of weights and running statistics in MindSpore; the formula is in zoo/optim/ema.py."""

from collections.abc import Mapping

from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype
from mindspore.common.initializer import initializer

from zoo.optim.ema import WARMUP_FACTOR, WARMUP_OFFSET, Ema
from zoo.trainer.mindspore.fp64 import constant
from zoo.trainer.mindspore.names import named_tensors
from zoo.trainer.mindspore.shard import ParameterShard
from zoo.trainer.state import ema_key


class MovingAverage(nn.Cell):
    """(number, skipped, consecutive skips) -> done: take the present weights into the average, on the device.

    The arguments are the number of the update, from 1, and the counters of skipped ones behind it. If this one was
    skipped, nothing changes. A graph of its own, because that of the update has to change weights and statistics before
    they are read. Every operation rounds once, so that every framework computes the same bits, in fp32 and in fp64.

    Args:
        spec: decay and warm-up.
        model: whose tensors are to be the averages.
        tensors: what is averaged, by canonical name.
        shards: sharded parameters among them.
        dtype: of the tensors.
        skips_on_host: whether the host decides on an update, as on a CPU, where it waits for nothing.

    Attributes:
        averages: of all tensors of the model and of this rank's rows of the shards, by canonical name.
    """

    def __init__(
        self,
        spec: Ema,
        model: nn.Cell,
        tensors: Mapping[str, Parameter],
        shards: Mapping[str, ParameterShard],
        dtype: mstype.Type,
        skips_on_host: bool,
    ):
        super().__init__()
        self.averages = named_tensors(model)
        for name, shard in shards.items():
            self.averages[name] = Parameter(initializer("zeros", shard.values.shape, dtype), requires_grad=False)
        for name, parameter in self.averages.items():
            parameter.name, parameter.requires_grad = ema_key(name), False
        self.targets, self.sources = ParameterTuple(self.averages.values()), ParameterTuple(tensors.values())
        self.dtype, self.warmup, self.skips_on_host, self.map = dtype, spec.warmup, skips_on_host, ops.HyperMap()
        number = constant if dtype == mstype.float64 else float
        self.last_rate, self.factor, self.offset = map(number, (spec.last_rate, WARMUP_FACTOR, WARMUP_OFFSET))

    def construct(self, number, skipped, consecutive_skips):
        finite = consecutive_skips == 0
        rate = self.rate((number - skipped).astype(self.dtype))
        if not self.skips_on_host:  # noqa: SIM114 - known to the compiler, unlike the other condition
            self.map(ops.partial(self.move, rate, finite), self.targets, self.sources)
        elif finite:
            self.map(ops.partial(self.move, rate, finite), self.targets, self.sources)
        return finite

    def rate(self, applied: Tensor) -> Tensor:
        """Return the share of the weights in update `applied`, 0-d."""
        last_rate = ops.ones_like(applied) * self.last_rate
        return ops.maximum(self.factor / (applied + self.offset), last_rate) if self.warmup else last_rate

    def move(self, rate, finite, average, source):
        """Move an average towards a tensor by a share of the way, in place."""
        new = average - rate * (average - source)
        return ops.assign(average, new if self.skips_on_host else ops.select(finite, new, average))
