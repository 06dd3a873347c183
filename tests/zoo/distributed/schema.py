"""A validator for the JSON schemas of custom resource definitions: the keywords that they use."""

import re
from collections.abc import Iterator
from typing import Any

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}


def errors(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield a line for every violation."""
    for choice in [schema] if "type" in schema else schema.get("anyOf", []):
        if _has_type(value, choice["type"]):
            break
    else:
        yield f"{place}: {value!r} has a wrong type"
        return
    if value not in schema.get("enum", [value]):
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{place}: {value!r} does not match {schema['pattern']}"
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        yield from (f"{place}.{name}: is missing" for name in schema.get("required", []) if name not in value)
        for name, entry in value.items():
            if name in properties:
                yield from errors(entry, properties[name], f"{place}.{name}")
            elif others is False:
                yield f"{place}.{name}: is not defined"
            elif isinstance(others, dict):
                yield from errors(entry, others, f"{place}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, entry in enumerate(value):
            yield from errors(entry, schema["items"], f"{place}[{number}]")


def _has_type(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and not (name == "integer" and isinstance(value, bool))
