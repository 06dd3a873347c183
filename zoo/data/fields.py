"""Limits of settings, in their annotations: `size: Annotated[int, Range(1)] = 224` is all that checks a size."""

import math
import typing
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple


class Range(NamedTuple):
    """Limits of a number, or of all numbers of a tuple.

    Attributes:
        low, high: the least and the largest value.
        above, below: whether `low` itself is too little, and `high` itself too much.
        ordered: whether a tuple must not decrease.
        odd: whether the number must be odd.
        of_pixels: whether they are levels of pixels, which other programs count from 0 to 255, and here from 0 to 1.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    ordered: bool = True
    odd: bool = False
    below: bool = False
    of_pixels: bool = False

    def __str__(self) -> str:
        least = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        most = f"below {self.high:g}" if self.below else f"at most {self.high:g}"
        if self.high == math.inf:
            limits = least
        elif self.low == -math.inf:
            limits = most
        else:
            limits = f"{least} and {most}" if self.above or self.below else f"from {self.low:g} to {self.high:g}"
        return limits + (", odd" if self.odd else "")

    def holds(self, value: float) -> bool:
        """Return whether a number is within the limits; NaN is not."""
        enough = self.low < value if self.above else self.low <= value
        not_too_much = value < self.high if self.below else value <= self.high
        return enough and not_too_much and math.isfinite(value) and (not self.odd or value % 2 == 1)

    def remedy(self, values: Sequence[float]) -> str:
        """Return the end of a message on numbers that are not within the limits; "" where none is known."""
        if not self.of_pixels or not all(map(self._replace(high=255).holds, values)):
            return ""
        divided = [float(f"{value / 255:.4g}") for value in values]
        return f"; pixels are from 0 to 1 here: divided by 255, this is {divided}"


Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Classes = Annotated[int, Range(2)]
NotNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, above=True)]
Probability = Annotated[float, Range(0, 1)]
Share = Annotated[float, Range(0, 1, below=True)]  # that leaves something
HeldOut = Annotated[float, Range(0, 0.5, above=True)]  # fraction of a set
Shares = Annotated[tuple[float, ...], Range(0, 1, above=True, ordered=False)]
Factors = Annotated[tuple[float, ...], Range(0, above=True, ordered=False)]
Fractions = Annotated[tuple[float, float], Range(0, 1, above=True)]  # of an area, the smaller one first
Ratios = Annotated[tuple[float, float], Range(0, 100, above=True)]  # aspect ratios, the smaller one first
Sides = Annotated[tuple[int, int], Range(1, ordered=False)]  # height and width, in pixels
Means = Annotated[tuple[float, float, float], Range(0, 1, ordered=False, of_pixels=True)]  # of red, green and blue
Deviations = Annotated[tuple[float, float, float], Range(0, 1, above=True, ordered=False, of_pixels=True)]  # likewise


class Text(NamedTuple):
    """Mark of text: whether it names files or folders, which are those of one machine."""

    is_path: bool


FilePath = Annotated[str, Text(is_path=True)]
Word = Annotated[str, Text(is_path=False)]


def is_path(hint: Any) -> bool:
    """Return whether a value of an annotation with its extras may be a path: text that is not marked as a Word."""
    marks = [item.is_path for item in getattr(hint, "__metadata__", ()) if isinstance(item, Text)]
    return marks[0] if marks else hint is str or any(map(is_path, typing.get_args(hint)))


def check(settings: Any) -> None:
    """Check the values of a settings dataclass against the Ranges in its annotations.

    Null passes, and so do values of other types than numbers and tuples of them.

    Raises:
        ValueError: `key: must be at least 1, got 0`.
    """
    for name, limits in _limits(settings.__class__).items():
        value = getattr(settings, name)
        values = value if isinstance(value, tuple) else (value,)
        numbers = [item for item in values if isinstance(item, (int, float)) and not isinstance(item, bool)]
        if not all(map(limits.holds, numbers)):
            raise ValueError(f"{name}: must be {limits}, got {value!r}{limits.remedy(numbers)}")
        if limits.ordered and numbers != sorted(numbers):
            raise ValueError(f"{name}: must not decrease, got {value!r}")


class Checked:
    """Base of settings dataclasses: their annotations are checked when one is made."""

    def __post_init__(self) -> None:
        check(self)


@cache
def _limits(settings_class: type) -> dict[str, Range]:
    hints = typing.get_type_hints(settings_class, include_extras=True)
    return {name: limits for name, hint in hints.items() if (limits := _range(hint))}


def _range(hint: Any) -> Range | None:
    """Return the Range in an annotation or in one part of a union."""
    found = [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Range)]
    found += [limits for part in typing.get_args(hint) if (limits := _range(part))]
    return found[0] if found else None
