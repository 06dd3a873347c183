"""Annotations of settings: `size: Annotated[int, Range(low=1), Doc("Side, in pixels.")] = 224`.

The Range is all that checks a size; the Doc is what `zoo train --explain`, docs/keys.md and the JSON Schema show of it.
"""

import inspect
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, NamedTuple


@dataclass(frozen=True, kw_only=True)
class Range:
    """Limits of a number, or of all numbers of a tuple.

    Attributes:
        low, high: the least and the largest value.
        open_low, open_high: whether `low` itself is too little, and `high` itself too much.
        ordered: whether a tuple must not decrease.
        odd: whether the number must be odd.
        of_pixels: whether they are levels of pixels, which other programs count from 0 to 255, and here from 0 to 1.
    """

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    ordered: bool = True
    odd: bool = False
    of_pixels: bool = False

    def __str__(self) -> str:
        least = f"above {self.low:g}" if self.open_low else f"at least {self.low:g}"
        most = f"below {self.high:g}" if self.open_high else f"at most {self.high:g}"
        if self.high == math.inf:
            limits = least
        elif self.low == -math.inf:
            limits = most
        else:
            limits = f"{least} and {most}" if self.open_low or self.open_high else f"from {self.low:g} to {self.high:g}"
        return limits + (", odd" if self.odd else "")

    def holds(self, value: float) -> bool:
        """Return whether a number is within the limits; NaN is not."""
        enough = self.low < value if self.open_low else self.low <= value
        not_too_much = value < self.high if self.open_high else value <= self.high
        return enough and not_too_much and math.isfinite(value) and (not self.odd or value % 2 == 1)

    def remedy(self, values: Sequence[float]) -> str:
        """Return the end of a message on numbers that are not within the limits; "" where none is known."""
        if not self.of_pixels or not all(map(replace(self, high=255).holds, values)):
            return ""
        divided = [float(f"{value / 255:.4g}") for value in values]
        return f"; pixels are from 0 to 1 here: divided by 255, this is {divided}"


Count = Annotated[int, Range(low=1)]
Natural = Annotated[int, Range(low=0)]
Classes = Annotated[int, Range(low=2)]
NotNegative = Annotated[float, Range(low=0)]
Positive = Annotated[float, Range(low=0, open_low=True)]
Probability = Annotated[float, Range(low=0, high=1)]
Share = Annotated[float, Range(low=0, high=1, open_high=True)]  # that leaves something
HeldOut = Annotated[float, Range(low=0, high=0.5, open_low=True)]  # fraction of a set
Shares = Annotated[tuple[float, ...], Range(low=0, high=1, open_low=True, ordered=False)]
Factors = Annotated[tuple[float, ...], Range(low=0, open_low=True, ordered=False)]
Fractions = Annotated[tuple[float, float], Range(low=0, high=1, open_low=True)]  # of an area, the smaller one first
Ratios = Annotated[tuple[float, float], Range(low=0, high=100, open_low=True)]  # aspect ratios, the smaller one first
Sides = Annotated[tuple[int, int], Range(low=1, ordered=False)]  # height and width, in pixels
Means = Annotated[
    tuple[float, float, float], Range(low=0, high=1, ordered=False, of_pixels=True)
]  # of red, green and blue
Deviations = Annotated[
    tuple[float, float, float], Range(low=0, high=1, open_low=True, ordered=False, of_pixels=True)
]  # likewise


class Doc(NamedTuple):
    """Meaning of a setting: a short sentence, without the default, the range and the choices that stand beside it."""

    text: str


class OneOf(NamedTuple):
    """Mark of text that names an entry of a dictionary, which its settings class checks."""

    names: tuple[str, ...]


class Text(NamedTuple):
    """Mark of text: whether it names files or folders, which are those of one machine."""

    is_path: bool


FilePath = Annotated[str, Text(is_path=True)]
Word = Annotated[str, Text(is_path=False)]


def is_path(hint: Any) -> bool:
    """Return whether a value of an annotation with its extras may be a path: text that is not marked as a Word."""
    marks = [item.is_path for item in getattr(hint, "__metadata__", ()) if isinstance(item, Text)]
    return marks[0] if marks else hint is str or any(map(is_path, typing.get_args(hint)))


@cache
def meanings(settings_class: type) -> dict[str, str]:
    """Return the Doc of each setting that has one; a subclass that changes a default keeps it."""
    hints = [hint for each in reversed(settings_class.__mro__) for hint in inspect.get_annotations(each).items()]
    marks = [(name, item) for name, hint in hints for item in getattr(hint, "__metadata__", ())]
    return {name: item.text for name, item in marks if isinstance(item, Doc)}


def check(settings: Any) -> None:
    """Check the values of a settings dataclass against the Ranges in its annotations.

    Null passes, and so do values of other types than numbers and tuples of them.

    Raises:
        ValueError: `key: must be at least 1, got 0`.
    """
    for name, limits in ranges(settings.__class__).items():
        try:
            check_value(getattr(settings, name), limits)
        except ValueError as error:
            raise SettingError(name, str(error)) from None


def check_value(value: Any, limits: Range) -> None:
    """Check one value against its Range, as `check` does. Raises ValueError."""
    values = value if isinstance(value, tuple) else (value,)
    numbers = [item for item in values if isinstance(item, (int, float)) and not isinstance(item, bool)]
    if not all(map(limits.holds, numbers)):
        finite = "" if all(map(math.isfinite, numbers)) else "finite and "
        raise ValueError(f"must be {finite}{limits}, got {value!r}{limits.remedy(numbers)}")
    if limits.ordered and numbers != sorted(numbers):
        raise ValueError(f"must not decrease, got {value!r}")


class SettingError(ValueError):
    """A settings class refuses a value.

    Args:
        name: of the setting, without its section.
    """

    def __init__(self, name: str, reason: str):
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class Checked:
    """Base of settings dataclasses: their annotations are checked when one is made."""

    def __post_init__(self) -> None:
        check(self)


@cache
def ranges(annotated: Any) -> dict[str, Range]:
    """Return the Ranges of the settings of a class, or of the arguments of a function, that have one."""
    hints = typing.get_type_hints(annotated, include_extras=True)
    return {name: limits for name, hint in hints.items() if (limits := _range(hint))}


def _range(hint: Any) -> Range | None:
    """Return the Range in an annotation or in one part of a union."""
    found = [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Range)]
    found += [limits for part in typing.get_args(hint) if (limits := _range(part))]
    return found[0] if found else None
