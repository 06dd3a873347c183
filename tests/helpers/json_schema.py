"""A validator for JSON schemas: the keywords that those of custom resource definitions and of recipes use."""

import re
from collections.abc import Iterator
from typing import Any

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": int | float,
    "null": type(None),
}
BOUNDS = {
    "minimum": lambda value, bound: value >= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
}
COUNTS = {"minItems": list, "maxItems": list, "minProperties": dict, "maxProperties": dict}


def errors(value: Any, schema: dict[str, Any], place: str = "", root: dict[str, Any] | None = None) -> Iterator[str]:
    """Yield a line for every violation; `root` is what `$ref` refers to."""
    root = root or schema
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_has_type(value, name) for name in types):
        yield f"{place}: {value!r} has a wrong type"
        return
    yield from _combined(value, schema, place, root)
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{place}: {value!r} is none of {schema.get('enum', schema.get('const'))}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{place}: {value!r} does not match {schema['pattern']}"
    if _has_type(value, "number"):
        broken = [name for name, holds in BOUNDS.items() if name in schema and not holds(value, schema[name])]
        yield from (f"{place}: {value!r} breaks {name} {schema[name]}" for name in broken)
    for name, kind in COUNTS.items():
        if isinstance(value, kind) and name in schema:
            surplus = len(value) - schema[name]
            if (surplus < 0) if name.startswith("min") else (surplus > 0):
                yield f"{place}: has {len(value)} entries, {name} is {schema[name]}"
    if isinstance(value, dict):
        yield from _in_object(value, schema, place, root)
    if isinstance(value, list) and "items" in schema:
        for number, entry in enumerate(value):
            yield from errors(entry, schema["items"], f"{place}[{number}]", root)


def _combined(value: Any, schema: dict[str, Any], place: str, root: dict[str, Any]) -> Iterator[str]:
    def holds(other: dict[str, Any]) -> bool:
        return not any(errors(value, other, place, root))

    if "$ref" in schema:
        yield from errors(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], place, root)
    if "anyOf" in schema and not any(map(holds, schema["anyOf"])):
        yield f"{place}: {value!r} is nothing of anyOf"
    for part in schema.get("allOf", []):
        yield from errors(value, part, place, root)
    if "if" in schema and holds(schema["if"]):
        yield from errors(value, schema["then"], place, root)


def _in_object(value: dict[str, Any], schema: dict[str, Any], place: str, root: dict[str, Any]) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    yield from (f"{place}.{name}: is missing" for name in schema.get("required", []) if name not in value)
    for name, entry in value.items():
        yield from errors(name, schema.get("propertyNames", {}), place, root)
        if name in properties:
            yield from errors(entry, properties[name], f"{place}.{name}", root)
        elif others is False:
            yield f"{place}.{name}: is not defined"
        elif isinstance(others, dict):
            yield from errors(entry, others, f"{place}.{name}", root)


def _has_type(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
