"""Reading of JSON within a budget: a small text cannot ask for much memory or recursion."""

import json
import math
from collections.abc import Iterable
from typing import Any

MAX_CHARACTERS = 8 * 2**20  # the names of 21,841 classes have 1 to 2 million
MAX_VALUES = 1_000_000  # which take about 64 MB
MAX_DEPTH = 20  # of nested lists and objects


def loads(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON, exceeds the budget, or has a number that is not finite.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"has more than {MAX_CHARACTERS} characters")
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise ValueError(f"has more than {MAX_VALUES} values")
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"has more than {MAX_DEPTH} levels") from None
    _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    level = _containers([value])
    for _ in range(MAX_DEPTH):
        level = [inner for each in level for inner in _containers(each.values() if isinstance(each, dict) else each)]
    if level:
        raise ValueError(f"has more than {MAX_DEPTH} levels")


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value
