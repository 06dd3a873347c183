"""Reading of JSON within a budget: a file cannot ask for much more memory than it has bytes."""

import json
import math
from typing import Any

from zoo.data.formats import regular

# Estimate of the memory that values take, from the characters that separate them.
BYTES_PER_CHARACTER, BYTES_PER_ITEM, BYTES_PER_OBJECT = 4, 64, 256
FREE_BYTES, EXPANSION = 128 << 20, 16  # limit of the estimate: the greater of the first, and so many times the size


def loads(text: str, finite: bool = False) -> Any:
    """Return the value of a JSON text.

    Args:
        text: in JSON, also with the numbers NaN, Infinity and -Infinity of Python.
        finite: refuse numbers that are not finite.

    Raises:
        ValueError: the text is not JSON, exceeds the budget, or has a number that is refused.
    """
    items = text.count(",") + text.count("[")
    size = len(text) * BYTES_PER_CHARACTER + items * BYTES_PER_ITEM + text.count("{") * BYTES_PER_OBJECT
    if size > max(FREE_BYTES, EXPANSION * len(text)):
        raise ValueError("it would take more memory than a file of its size should")
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite) if finite else json.loads(text)
    except RecursionError:
        raise ValueError("too many levels of lists and objects") from None


def load(path: str) -> Any:
    """Return the value of a JSON file in UTF-8.

    Raises:
        ValueError, OSError, BadSample: the file cannot be read, is no regular one, or not JSON within the budget.
    """
    return loads(regular.read(path).decode("utf-8-sig"))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value
