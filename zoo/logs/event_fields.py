"""The fields of events without which a run cannot go on: what its logs and its record of the data are made of."""

import math
from collections.abc import Callable, Mapping
from typing import Any


def is_number(value: Any) -> bool:
    """Return whether a value is a number that a float can hold, or NaN."""
    return isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 1000)


def is_finite(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return is_number(value) and math.isfinite(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


Test = Callable[[Any], bool]
FIELDS: Mapping[str, Mapping[str, Test]] = {
    "load": {"at": is_finite, "checksum": _is_text, "train_samples": is_finite},
    "speed": {"samples_per_s": is_finite},
    "train": {"epoch": is_finite},
    "eval": {"epoch": is_finite, "accuracy": is_number},
    "end": {"epoch": is_finite},
    "bad": {"name": _is_text},
    "unreadable": {"name": _is_text},
    "data_changed": {"mended": _are_texts},
}


def missing(event: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields that an event lacks, or that have other types."""
    tests = {"time": is_finite, **FIELDS.get(event["event"], {})}
    return [name for name, test in tests.items() if not test(event.get(name))]
