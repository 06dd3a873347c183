"""Moving average of weights and running statistics in PyTorch; the formula is in zoo/optim/ema.py."""

from collections.abc import Mapping

import torch
from torch import nn

from zoo.optim.ema import WARMUP_FACTOR, WARMUP_OFFSET, Ema
from zoo.trainer.torch.names import named_tensors
from zoo.trainer.torch.shard import ParameterShard

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
        model: nn.Module,
        tensors: Mapping[str, torch.Tensor],
        shards: Mapping[str, ParameterShard],
    ):
        self.spec, self.sources, self.shards = spec, tensors, shards
        self.averages = {name: tensor.detach() for name, tensor in named_tensors(model).items()}
        self.averages.update((name, torch.zeros_like(shard.values.detach())) for name, shard in shards.items())

    @torch.no_grad()
    def update(self, applied: torch.Tensor, finite: torch.Tensor) -> None:
        """Take the present weights into the average, on the device.

        Args:
            applied: number of the update without those that were skipped, from 1; 0-d.
            finite: 0-d bool; where it is False, nothing changes.
        """
        averages = [average for name, average in self.averages.items() if name not in self.shards]
        # The forward pass of a skipped update may have left statistics that are not finite.
        sources = [
            source.detach() if isinstance(source, nn.Parameter) else torch.where(finite, source, self.averages[name])
            for name, source in self.sources.items()
            if name not in self.shards
        ]
        rate = self._rate(applied.to(averages[0].dtype))
        rate = torch.where(finite, rate, torch.zeros_like(rate))
        _move(averages, sources, rate)
        for name, shard in self.shards.items():
            rows = max(1, BLOCK_SIZE // shard.values.shape[1])
            for average, values in zip(self.averages[name].split(rows), shard.values.detach().split(rows)):
                _move([average], [values], rate)

    def _rate(self, applied: torch.Tensor) -> torch.Tensor:
        """Return the share of the weights in update `applied`, 0-d."""
        if not self.spec.warmup:
            return torch.full_like(applied, self.spec.last_rate)
        factor = torch.full_like(applied, WARMUP_FACTOR)  # PyTorch computes number / x as number * (1 / x)
        return (factor / (applied + WARMUP_OFFSET)).clamp(min=self.spec.last_rate)


def _move(averages: list[torch.Tensor], sources: list[torch.Tensor], rate: torch.Tensor) -> None:
    """Move averages towards tensors by a share of the way, in place; with one kernel each for all of them on a GPU."""
    differences = torch._foreach_sub(averages, sources)
    torch._foreach_mul_(differences, rate)
    torch._foreach_sub_(averages, differences)
