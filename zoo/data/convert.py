"""Conversion of YAML values to the declared types of settings."""

import dataclasses
import types
import typing
from contextlib import suppress
from typing import Any

from zoo.data.errors import similar_name
from zoo.data.fields import OneOf, Range

MAX_BITS = 63  # of a whole number
NOUNS = {  # what a value of a type is called, one and several; a class that parses its values has its own
    bool: ("true or false", "values true or false"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("text", "texts"),
    type(None): ("null", "nulls"),
}


def convert(value: Any, target: Any) -> Any:
    """Convert a YAML value to a declared type.

    Args:
        target: Type hint: bool, int, float, str, a Literal, a tuple, a class that parses its values (Duration, or Steps
            of augment/), or a union of these or None.

    Raises:
        ValueError: Names the expected type or the possible values.
    """
    origin, arguments = typing.get_origin(target), typing.get_args(target)
    if origin in (typing.Union, types.UnionType):
        return _union(value, arguments)
    if origin is typing.Literal:
        return _choice(value, arguments)
    if origin is tuple:
        return _tuple(value, arguments)
    if hasattr(target, "parse"):
        return value if isinstance(value, target) else target.parse(value)
    if dataclasses.is_dataclass(target):
        raise ValueError(f"expected the keys of a section or null, got {value!r}")
    return _scalar(value, target)


def plain(value: Any) -> Any:
    """Return a converted value as YAML types again: lists for tuples, `plain()` of what has it."""
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value.plain() if hasattr(value, "plain") else value


def _union(value: Any, kinds: tuple[Any, ...]) -> Any:
    if type(None) in kinds and (value is None or value == ""):
        return None
    for kind in kinds:
        with suppress(ValueError):
            return convert(value, kind)
    scalars = [kind for kind in kinds if kind is not type(None)]
    if len(scalars) == 1 and (typing.get_origin(scalars[0]) or dataclasses.is_dataclass(scalars[0])):
        return convert(value, scalars[0])  # a Literal, a tuple or a section tells more
    raise ValueError(f"expected {description(*kinds)}, got {value!r}")


def description(*kinds: Any) -> str:
    """Return what type hints, perhaps with Ranges, allow: "a whole number (at least 1), auto or null"."""
    *others, last = [text for kind in kinds for text in _alternatives(kind)]
    return f"{', '.join(others)} or {last}" if others else last


def _alternatives(kind: Any) -> list[str]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return [text for part in arguments for text in _alternatives(part)]
    if origin is typing.Annotated:
        if names := [name for mark in arguments if isinstance(mark, OneOf) for name in mark.names]:
            return names
        limits = [f" ({mark})" for mark in arguments[1:] if isinstance(mark, Range)]
        return [text + "".join(limits) for text in _alternatives(arguments[0])]
    if origin is typing.Literal:
        return [str(choice) for choice in arguments]
    return ["true", "false"] if kind is bool else [_noun(kind)]


def _noun(kind: Any, plural: bool = False) -> str:
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        count = "" if Ellipsis in arguments else f"{len(arguments)} "
        return f"{'lists' if plural else 'a list'} of {count}{_noun(arguments[0], True)}"
    if typing.get_origin(kind) is typing.Annotated:
        return _noun(arguments[0], plural)
    if kind is Any or (dataclasses.is_dataclass(kind) and not hasattr(kind, "parse")):
        return "the keys of a section"
    own = getattr(kind, "NOUNS", (kind.__name__, kind.__name__))  # those of a package may have none
    return NOUNS.get(kind, own)[plural]


def _choice(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if value == choice and type(value) is type(choice):
            return choice
    names = [str(choice) for choice in choices]
    raise ValueError(f"expected one of {', '.join(names)}; got {value!r}{similar_name(str(value), names)}")


def _tuple(value: Any, item_types: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"expected a list, got {value!r}")
    if len(item_types) == 2 and item_types[1] is Ellipsis:
        return tuple(convert(item, item_types[0]) for item in value)
    if len(value) != len(item_types):
        raise ValueError(f"expected {len(item_types)} values, got {len(value)}")
    return tuple(convert(item, item_type) for item, item_type in zip(value, item_types))


def _scalar(value: Any, target: type) -> Any:
    if target is float:
        return _float(value)
    is_bool = isinstance(value, bool)  # a bool also is an int
    if target is str and isinstance(value, (int, float)) and not is_bool:
        return str(value)
    if isinstance(value, target) and (target is bool or not is_bool):
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise ValueError(f"expected a number of {MAX_BITS} bits, got {value!r}")
        return value
    raise ValueError(f"expected {description(target)}, got {value!r}")


def _float(value: Any) -> float:
    # YAML 1.1 reads 1e-4 as text: only 1.0e-4 is a number to it.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected a number, got {value!r}")
    try:
        return float(value)
    except (ValueError, OverflowError):  # the latter for integers of hundreds of digits
        raise ValueError(f"expected a number, got {value!r}") from None
