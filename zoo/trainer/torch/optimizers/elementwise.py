"""Tensors of an update, and its application without a fused kernel: an update that is not finite changes nothing."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch

from zoo.trainer.torch import parallel
from zoo.trainer.torch.shard import squared_norm


class Tensors(NamedTuple):
    """A parameter, or the rows of it that an update uses, and what belongs to it.

    Attributes:
        weight: updated in place.
        gradient: scaled by the loss scale; in fp32 divided in place.
        slots: of the optimizer, in the order of its specification; updated in place.
        lr: learning rate, with the parameter's factor.
        weight_decay: of the parameter.
        divisor: of the gradient, for loss scale and clipping, 0-d.
        is_shard: whether other ranks hold other rows of the parameter.
    """

    weight: torch.Tensor
    gradient: torch.Tensor
    slots: tuple[torch.Tensor, ...]
    lr: float
    weight_decay: float
    divisor: torch.Tensor
    is_shard: bool = False


class Step(NamedTuple):
    """What all parameters have in common in an update.

    Attributes:
        finite: 0-d bool; where it is False, nothing changes.
        applied: number of this update without those that were skipped, from 1; 0-d.
        is_fp64: every operation rounds once, so that every framework computes the same bits.
        rounds: numbers of sums, such as norms, are rounded to fp32, as in an exact run.
        world_size: number of ranks, over which sharded parameters are split.
    """

    finite: torch.Tensor
    applied: torch.Tensor
    is_fp64: bool
    rounds: bool
    world_size: int

    def number(self, value: torch.Tensor) -> torch.Tensor:
        """Return a number that frameworks round differently; in an exact run, such that they have the same."""
        return value.float().to(value.dtype) if self.rounds else value

    def bias_correction(self, beta: float) -> torch.Tensor:
        """Return 1 - beta^t, 0-d float64, for the mean of t values that starts from 0."""
        return self.number(1 - beta ** self.applied.double())


Formula = Callable[[Any, Tensors, torch.Tensor, Step], tuple[torch.Tensor, ...]]


def apply(formula: Formula, spec: Any, tensors: Sequence[Tensors], step: Step) -> None:
    """Update parameters one by one.

    Args:
        formula: (spec, tensors, gradient, step) -> the new weight and the new slots; changes nothing.
        spec: hyper-parameters.
    """
    for each in tensors:
        new = formula(spec, each, _gradient(each, step), step)
        for tensor, value in zip((each.weight, *each.slots), new, strict=True):
            tensor.copy_(torch.where(step.finite, value, tensor))


def with_same_numbers(tensors: Sequence[Tensors]) -> Iterator[list[Tensors]]:
    """Yield parameters that a fused kernel can update at once: learning rate, weight decay and divisor are the same."""

    def numbers(each: Tensors) -> tuple[float, float, bool]:
        return each.lr, each.weight_decay, each.is_shard

    yield from (list(group) for _, group in groupby(sorted(tensors, key=numbers), numbers))


def norm(x: torch.Tensor, tensors: Tensors, step: Step) -> torch.Tensor:
    """Return the L2 norm, 0-d; of a shard over all ranks."""
    ranks = step.world_size if tensors.is_shard else 1
    return parallel.all_reduce(squared_norm(x), ranks).sqrt().to(x.dtype)


def sqrt(x: torch.Tensor) -> torch.Tensor:
    """Return the square root; in fp64 on a CPU by NumPy, since MKL's is not always rounded correctly."""
    if x.dtype == torch.float64 and x.device.type == "cpu":
        return torch.from_numpy(np.sqrt(x.numpy()))
    return x.sqrt()


def ratio_or_one(x: torch.Tensor, y: torch.Tensor, ratio: torch.Tensor) -> torch.Tensor:
    """Return a trust ratio of two norms, 1 if one of them is 0; 0-d."""
    return torch.where((x > 0) & (y > 0), ratio, 1)


def _gradient(tensors: Tensors, step: Step) -> torch.Tensor:
    """Return the gradient without loss scale, clipped."""
    if step.is_fp64:
        return tensors.gradient * step.number(1 / tensors.divisor)
    return tensors.gradient.div_(torch.where(step.finite, tensors.divisor, 1))  # as fused kernels do
