"""The JSON Schema of recipes, by which editors complete keys and check values: zoo train --schema."""

import re
import typing
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any

from zoo.commands.keys import BASE, NAMING, Owner, names_of, owners
from zoo.config.schema import DEFAULT_NAMES, Duration, GroupRule
from zoo.data.augment import catalog
from zoo.data.augment.albumentations import PREFIX
from zoo.data.augment.steps import Steps
from zoo.data.convert import plain
from zoo.data.fields import OneOf, Range, meanings

Schema = dict[str, Any]
NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"  # 1e-4 is text in YAML 1.1
SCALARS: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "string"], "pattern": NUMBER},
    str: {"type": ["string", "number"]},
    type(None): {"type": "null"},
}


def schema() -> Schema:
    """Return the schema.

    Where a recipe names its model, data set or optimizer, or a loss, the keys of the section are those of this one.
    Where it does not, since its base may, they are those of any.
    """
    by_section: dict[str, list[Owner]] = {}
    for owner in owners():
        by_section.setdefault(owner.section, []).append(owner)
    (top,), (upstream,) = by_section[""], by_section["upstream"]
    sections = {name: _section(by_section[name]) for name in ("model", "data", "task", "train", "optim")}
    sections["upstream"] = {"anyOf": [_settings(upstream.settings), {"type": "null"}], "default": None}
    known = meanings(top.settings)
    described = {name: {"description": known[name], **section} for name, section in sections.items()}
    base = {"description": BASE, "default": None, "type": ["string", "null"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Recipe",
        **_object({"base": base, **_settings(top.settings)["properties"], **described}),
        "$defs": {_reference(owner): _settings(owner.settings, owner) for owner in owners() if owner.key},
    }


def _section(among: list[Owner]) -> Schema:
    """Return the schema of a section, whose keys depend on the one that selects its settings class."""
    key = among[0].key
    if not key:
        return _settings(among[0].settings)
    chooser = key.partition(".")[2]
    every: dict[str, list[Schema]] = {}
    for owner in among:
        for name, value in _settings(owner.settings, owner)["properties"].items():
            if value not in every.setdefault(name, []):
                every[name].append(value)
    names = names_of(key, among)
    properties: Schema = {name: values[0] if len(values) == 1 else {"anyOf": values} for name, values in every.items()}
    properties[chooser] = {"description": NAMING[key][1], "enum": names}
    if key in DEFAULT_NAMES:
        properties[chooser]["default"] = DEFAULT_NAMES[key]
    choices = []
    for name in names:
        refs = [{"$ref": f"#/$defs/{_reference(owner)}"} for owner in among if owner.name.split("/")[-1] == name]
        is_chosen = {"properties": {chooser: {"const": name}}, "required": [chooser]}
        choices.append({"if": is_chosen, "then": refs[0] if len(refs) == 1 else {"anyOf": refs}})
    return {**_object(properties), "allOf": choices}


def _reference(owner: Owner) -> str:
    return f"{owner.section}.{owner.name.replace('/', '.')}"


def _settings(settings: type, owner: Owner | None = None) -> Schema:
    """Return the schema of the keys of a settings class, and of the one by which an owner is selected."""
    hints, known = typing.get_type_hints(settings, include_extras=True), meanings(settings)
    properties: Schema = {}
    for field in fields(settings):
        facts = {"description": known[field.name]} if field.name in known else {}
        if field.default is not MISSING:
            facts["default"] = plain(field.default)
        properties[field.name] = {**facts, **_value(hints[field.name])}
    return _object({**({owner.key.partition(".")[2]: {}} if owner else {}), **properties})


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _value(hint: Any) -> Schema:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        if names := [name for mark in arguments if isinstance(mark, OneOf) for name in mark.names]:
            return {"enum": names}
        return _limited(_value(arguments[0]), [mark for mark in arguments[1:] if isinstance(mark, Range)])
    if origin in (typing.Union, UnionType):
        return {"anyOf": [_value(part) for part in arguments]}
    if origin is typing.Literal:
        return {"enum": [*arguments]}
    if origin is tuple:
        count = {} if Ellipsis in arguments else {"minItems": len(arguments), "maxItems": len(arguments)}
        return {"type": "array", "items": _value(arguments[0]), **count}
    if hint is Duration:
        return {"type": ["integer", "string"], "pattern": r"^\s*\d+(\.\d+)?\s*(epochs?|steps?)?\s*$", "minimum": 0}
    if hint is GroupRule:
        return {**_settings(GroupRule), "required": ["match"], "minProperties": 2}
    if hint is Steps:
        name = {"anyOf": [{"enum": [*catalog()]}, {"type": "string", "pattern": f"^{re.escape(PREFIX)}"}]}
        options = {"type": "object", "minProperties": 1, "maxProperties": 1, "propertyNames": name}
        return {"type": "array", "items": {"anyOf": [name, options]}}
    return SCALARS.get(hint, {})


def _limited(value: Schema, limits: list[Range]) -> Schema:
    """Return a schema with the limits of its numbers, or of those of its items."""
    if not limits:
        return value
    if "items" in value:
        return {**value, "items": _limited(value["items"], limits)}
    bounds = {
        "exclusiveMinimum" if limits[0].open_low else "minimum": limits[0].low,
        "exclusiveMaximum" if limits[0].open_high else "maximum": limits[0].high,
    }
    return {**value, **{name: bound for name, bound in bounds.items() if abs(bound) != float("inf")}}
