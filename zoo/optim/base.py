"""Section `optim` with an optimizer, and what the formulas of optimizers have in common."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from zoo.config.schema import Optim
from zoo.data.errors import known_names
from zoo.data.fields import OneOf, SettingError, Word, check
from zoo.optim.schedules import SCHEDULES


@dataclass(frozen=True)
class Settings(Optim):
    """Section `optim`; an optimizer extends it by its hyper-parameters and its formula.

    Attributes:
        uses_norms: whether the formula has norms of a whole parameter, which a rank that holds some rows lacks.
        is_decoupled: whether the weight decay is no part of the slots, which start from 0 and are corrected for it.
        is_linear: whether the direction is linear in the gradient, the weight decay and the one slot, a momentum.
    """

    uses_norms: ClassVar[bool] = False
    is_decoupled: ClassVar[bool] = False
    is_linear: ClassVar[bool] = False

    schedule: Annotated[Word, OneOf(tuple(SCHEDULES))] = Optim.schedule

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self)
        if self.schedule not in SCHEDULES:
            raise SettingError(
                "schedule", f"there is no {self.schedule!r}{known_names(self.schedule, list(SCHEDULES))}"
            )
        if self.min_lr and "min_lr" not in SCHEDULES[self.schedule].keys:
            raise SettingError(
                "min_lr", f"the schedule {self.schedule} has none; set it to 0, or choose another optim.schedule"
            )

    def sum_rounding(self, weight: Any) -> float:
        """Return the relative rounding of an update by sums over the whole parameter, in units of the last bit."""
        return weight.size**0.5 if self.uses_norms and weight.ndim > 1 else 0.0

    def direction(
        self, math: "Math", weight: Any, gradient: Any, slots: tuple[Any, ...], decay: float, applied: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return what the learning rate multiplies in an update, and the new slots; changes nothing.

        Elementwise but for the methods of `math`, because PyTorch computes it for many parameters, as one vector.

        Args:
            weight: a parameter, or the rows of it that the update uses.
            gradient: without loss scale, clipped.
            applied: number of the update without those that were skipped, from 1; ().
        """
        raise NotImplementedError


ROUNDING = 1.5 * 2.0**36  # fp64 numbers there are multiples of 2**-16


@dataclass(frozen=True)
class Math:
    """Operations of a framework for the update of a parameter.

    Attributes:
        ranks: among which the rows of the parameter are divided.
        rounds: round numbers that frameworks compute differently, sums and powers, to fp32, as in an exact run.
        channels_last: whether the output channels of a filter are its last axis, not its first one.
    """

    ops: Any
    ranks: int = 1
    rounds: bool = False
    channels_last: bool = False

    def number(self, value: float, like: Any) -> Any:
        """Return a hyper-parameter as an operand."""
        return self.ops.number(value, like.dtype)

    def decayed(self, gradient: Any, weight: Any, decay: float) -> Any:
        """Return a gradient, or what else the learning rate multiplies, plus decay x weight."""
        if isinstance(decay, float) and decay == 0.0:
            return gradient
        return gradient + self.number(decay, weight) * weight

    def rounded(self, value: Any) -> Any:
        """Return a number that frameworks compute differently; in an exact run, such that they have the same."""
        return self.ops.round_to_fp32(value) if self.rounds else value

    def bias_correction(self, log_beta: float, applied: Any, like: Any) -> Any:
        """Return 1 - beta^applied, given the logarithm of beta, for the mean of so many values that starts from 0."""
        return self.ops.astype(self.rounded(self.ops.bias_correction(log_beta, applied, like.dtype)), like.dtype)

    def norm(self, x: Any) -> Any:
        """Return the L2 norm, of a sharded parameter over all ranks; ()."""
        return self.ops.norm(x, self.ranks)

    def has_trust(self, weight: Any) -> bool:
        """Return whether layer-wise rates adapt to the norm of a parameter: not to biases and normalizations."""
        return weight.ndim > 1

    def is_filter(self, weight: Any) -> bool:
        """Return whether a parameter is that of a convolution."""
        return weight.ndim > 2

    def of_matrix(self, function: Any, x: Any) -> Any:
        """Return function(self, x) of a filter as a matrix, a row per output channel, as a filter again."""
        shape = x.shape
        matrix = x.reshape((-1, shape[-1]) if self.channels_last else (shape[0], -1))
        return function(self, matrix).reshape(shape)

    def rounded_elements(self, x: Any) -> Any:
        """Return a tensor of about 1 that frameworks compute differently; in an exact run, multiples of 2**-16."""
        if not self.rounds:
            return x
        c = self.number(ROUNDING, x)
        return (x + c) - c

    def trust(self, x: Any, y: Any, ratio: Any) -> Any:
        """Return a ratio of two norms, or 1 if one of them is 0; ()."""
        return self.rounded(self.ops.where(self.ops.logical_and(x > 0, y > 0), ratio, self.ops.ones_like(ratio)))

    def scaled(self, factor: Any, x: Any) -> Any:
        """Return a parameter's direction, multiplied by a number of the parameter."""
        return factor * x
