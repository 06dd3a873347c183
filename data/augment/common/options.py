"""Options of augmentations: keyword arguments with a default, whose annotations say what values are possible.

An annotation is bool, int, float, a Literal or a tuple of one of these, with a Range for numbers:
`p: Annotated[float, Range(0, 1)] = 0.5`.
"""

import difflib
import inspect
import math
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from zoo.data.fields import Fractions, Probability, Range, Ratios

__all__ = ["Fractions", "Probability", "Range", "Ratios", "convert", "nearest"]
KEYWORD = inspect.Parameter.KEYWORD_ONLY


def convert(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Convert the options of a recipe to the types that a function declares.

    Args:
        function: its keyword-only arguments are the options.
        given: options by name, as YAML has them.

    Raises:
        ValueError: names the option, and the nearest right name or the possible values.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    options = [name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind is KEYWORD]
    converted = {}
    for name, value in given.items():
        if name not in options:
            raise ValueError(f"{name}: unknown option{nearest(str(name), options)}")
        try:
            converted[name] = _convert(value, hints[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return converted


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint at the name that was meant by an unknown one, as the end of a message."""
    similar = difflib.get_close_matches(name, known, 1, 0.5)
    if similar:
        return f"; did you mean {similar[0]}?"
    return f"; there are: {', '.join(known)}" if known else "; there are none"


def _convert(value: Any, hint: Any) -> Any:
    limits = Range()
    if typing.get_origin(hint) is Annotated:
        hint, limits = typing.get_args(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"must be {' or '.join(map(str, arguments))}, got {value!r}")
        return value
    if origin is tuple:
        return _tuple(value, arguments, limits)
    if hint is bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, got {value!r}")
        return value
    return _number(value, hint, limits)


def _tuple(value: Any, kinds: tuple[Any, ...], limits: Range) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"must be a list of numbers, got {value!r}")
    if kinds[-1] is not Ellipsis and len(value) != len(kinds):
        raise ValueError(f"must be {len(kinds)} numbers, got {list(value)!r}")
    numbers = tuple(_number(item, kinds[0], limits) for item in value)
    if limits.ordered and list(numbers) != sorted(numbers):
        raise ValueError(f"must not decrease, got {list(value)!r}")
    return numbers


def _number(value: Any, kind: type, limits: Range) -> float:
    what = "a whole number" if kind is int else "a number"
    try:  # YAML 1.1 reads 1e-4 as text
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):  # the latter for integers of hundreds of digits
        number = math.nan
    if math.isnan(number) or (kind is int and number % 1) or not limits.holds(number):
        raise ValueError(f"must be {what} {limits}, got {value!r}")
    return kind(number)
