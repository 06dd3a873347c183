"""Fields of events, whose types a damaged or foreign journal does not guarantee."""

from collections.abc import Iterable, Mapping
from typing import Any

MAX_TEXT = 500  # characters of a text that are kept
LARGEST = 1e30  # number that is used, so that products and ratios stay finite


def field(event: Any, *keys: str) -> Any:
    """Return a field of nested dictionaries; None where one of them is missing or is no dictionary."""
    for key in keys:
        if not isinstance(event, Mapping):
            return None
        event = event.get(key)
    return event


def number(event: Any, *keys: str) -> float | None:
    """Return a field that is a finite number, as a float; None for everything else."""
    return finite(field(event, *keys))


def finite(value: Any) -> float | None:
    """Return a finite number as a float; None for everything else, also for numbers that nobody can have measured."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
    return converted if converted == 0 or 1 / LARGEST <= abs(converted) <= LARGEST else None  # not NaN


def positive(event: Any, *keys: str) -> float | None:
    """Return a field that is a finite number above 0, as a float; None for everything else."""
    value = number(event, *keys)
    return value if value is not None and value > 0 else None


def whole(event: Any, *keys: str) -> int | None:
    """Return a field that is a whole number of at least 1; None for everything else."""
    value = number(event, *keys)
    return int(value) if value is not None and value >= 1 and value == int(value) else None


def text(event: Any, *keys: str) -> str | None:
    """Return a field that is a text with something in it, on one line; None for everything else."""
    value = field(event, *keys)
    return " ".join(value[:MAX_TEXT].split()) or None if isinstance(value, str) else None


def items(event: Any, *keys: str) -> list[Any]:
    """Return a field that is a list; an empty one for everything else."""
    value = field(event, *keys)
    return value if isinstance(value, list) else []


def finite_all(values: Iterable[Any]) -> list[float]:
    """Return the finite numbers among values."""
    return [value for value in map(finite, values) if value is not None]
