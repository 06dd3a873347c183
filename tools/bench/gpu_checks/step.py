"""A step of the check: a program, its time limit, and how its result is read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

Values = Mapping[str, Any]


class Step(NamedTuple):
    """A step.

    Attributes:
        name: of its files.
        group: of steps whose results make one table.
        words: command line of the program, after the Python interpreter.
        seconds: limit of its time.
        read: returns what was measured, from the step's folder; raises OSError, ValueError or KeyError if it is not
            there.
        missing: why it cannot run here; None if it can.
        facts: what the table says of the step beside its values.
        accepts: exit codes that are results.
    """

    name: str
    group: str
    words: tuple[str, ...]
    seconds: float
    read: Callable[[Path], Values]
    missing: str | None = None
    facts: Values = MappingProxyType({})
    accepts: tuple[int, ...] = (0,)
