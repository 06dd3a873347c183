"""Moving average of weights and running statistics in MindSpore; the formula is in zoo/optim/ema.py."""

from collections.abc import Mapping

from mindspore import Parameter, ParameterTuple, nn
from mindspore import dtype as mstype
from mindspore import ops as mint
from mindspore.common.initializer import initializer

from zoo.optim.ema import Ema, moved
from zoo.optim.ema import rate as rate_of
from zoo.trainer.mindspore import ops
from zoo.trainer.mindspore.names import named_tensors
from zoo.trainer.mindspore.partial_fc import ParameterShard
from zoo.trainer.state import ema_key


class MovingAverage(nn.Cell):
    """(number, skipped, consecutive skips) -> done: take the present weights into the average, on the device.

    The arguments are the number of the update, from 1, and the counters of skipped ones behind it. If this one was
    skipped, nothing changes. A graph of its own, because that of the update has to change weights and statistics before
    they are read.

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
        self.last_rate, self.warmup, self.ops, self.dtype = spec.last_rate, spec.warmup, ops, dtype
        self.skips_on_host, self.map = skips_on_host, mint.HyperMap()

    def construct(self, number, skipped, consecutive_skips):
        finite = consecutive_skips == 0
        rate = rate_of(self.ops, (number - skipped).astype(self.dtype), self.last_rate, self.warmup)
        if not self.skips_on_host:  # noqa: SIM114 - known to the compiler, unlike the other condition
            self.map(mint.partial(self.move, rate, finite), self.targets, self.sources)
        elif finite:
            self.map(mint.partial(self.move, rate, finite), self.targets, self.sources)
        return finite

    def move(self, rate, finite, average, source):
        """Move an average towards a tensor by a share of the way, in place."""
        new = moved(average, source, rate)
        return mint.assign(average, new if self.skips_on_host else mint.select(finite, new, average))
