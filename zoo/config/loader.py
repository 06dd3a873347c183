"""YAML recipes and `-o key=value` to a frozen Config. Every mistake names its place and the nearest right key."""

import difflib
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NamedTuple

import yaml

from data.errors import UserError
from zoo.config.schema import Config, Span

DEFAULT = "default"


class Entry(NamedTuple):
    value: Any
    origin: str  # "configs/tsm_demo.yaml:7", "-o data.root" or "default"


Entries = dict[str, Entry]  # dotted key -> entry
Find = tuple[str, Callable[[str], type]]  # the key whose value names a section's settings, and how to find them


def read(path: str, _chain: tuple[str, ...] = ()) -> Entries:
    """A recipe's entries on top of those of its `base:` (a path relative to the file). Raises UserError."""
    if os.path.realpath(path) in _chain:
        raise UserError(f"{path}: base: the recipe is its own base")
    try:
        with open(path, encoding="utf-8") as file:
            root = yaml.compose(file, yaml.SafeLoader)
    except OSError as error:
        raise UserError(f"{path}: cannot read this recipe ({error.strerror}); recipes lie in configs/") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
    entries: Entries = {}
    if root is not None:
        _flatten(root, "", path, entries)
    base = entries.pop("base", None)
    if base is None:
        return entries
    below = read(os.path.join(os.path.dirname(path), str(base.value)), _chain + (os.path.realpath(path),))
    return {**below, **entries}


def overrides(pairs: Sequence[str]) -> Entries:
    """Entries of `-o key=value` arguments, values in YAML. Raises UserError."""
    entries: Entries = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise UserError(f"-o {pair}: expected key=value, for example -o optim.lr=0.01")
        try:
            value = yaml.safe_load(text) if text.strip() else ""
        except yaml.YAMLError:
            raise UserError(f"-o {pair}: the value is not valid YAML; quote it") from None
        if isinstance(value, dict):
            raise UserError(f"-o {pair}: give the keys below {key} one by one, -o {key}.NAME=VALUE")
        entries[key.strip()] = Entry(value, f"-o {key.strip()}")
    return entries


def build(entries: Entries, find: Mapping[str, Find]) -> tuple[Config, Entries]:
    """The Config and, for every key, its value and origin.

    find tells where the dataclass of a section comes from that another file defines: `model` goes by `model.name`, say.
    Raises UserError for unknown keys, wrong types and impossible values.
    """
    sections: dict[str, type] = {}
    hints = typing.get_type_hints(Config)
    for field in fields(Config):
        if field.name in find:
            key, settings = find[field.name]
            if key not in entries:
                raise UserError(f"{key}: the recipe must give this key; name a recipe with -c FILE")
            try:
                sections[field.name] = settings(str(entries[key].value))
            except UserError as error:
                raise UserError(f"{entries[key].origin}: {_prefixed(key, entries[key])}{error}") from None
        elif is_dataclass(hints[field.name]) and hints[field.name] is not Span:
            sections[field.name] = hints[field.name]
    known = _known(sections, find)
    for key, entry in entries.items():
        if key not in known:
            owner = find.get(key.split(".")[0], ("",))[0]
            whose = f" for {owner}={entries[owner].value}" if owner else ""
            raise UserError(f"{entry.origin}: {_prefixed(key, entry)}unknown key{whose}{_nearest(key, known)}")
    resolved: Entries = {}
    values: dict[str, Any] = {}
    for field in fields(Config):
        if field.name in sections:
            values[field.name] = _section(sections[field.name], f"{field.name}.", entries, resolved)
    for key, _ in find.values():
        resolved[key] = entries[key]
    top = _section(Config, "", entries, resolved, values)
    return top, {key: resolved[key] for key in sorted(resolved, key=_place(resolved))}


def render(resolved: Entries) -> str:
    """The resolved recipe as YAML, the origin of every value behind it."""
    lines, section = [], ""
    for key, entry in resolved.items():
        head, _, tail = key.rpartition(".")
        if head != section:
            lines.append(f"{head}:")
            section = head
        indent = "  " if head else ""
        value = yaml.safe_dump(_plain(entry.value), default_flow_style=True, width=10_000).replace("\n...", "").strip()
        lines.append(f"{f'{indent}{tail}: {value}':<44} # {entry.origin}")
    return "\n".join(lines) + "\n"


def differences(old: Entries, new: Entries) -> list[str]:
    """`key: old -> new` for every key whose value changed."""

    def values(entries: Entries) -> dict[str, Any]:
        return {key: _plain(entry.value) for key, entry in entries.items()}

    before, after = values(old), values(new)
    return [
        f"{key}: {before.get(key)} -> {after.get(key)}"
        for key in sorted({**before, **after})
        if before.get(key) != after.get(key)
    ]


def _flatten(node: yaml.Node, prefix: str, path: str, entries: Entries, _above: tuple[yaml.Node, ...] = ()) -> None:
    if node in _above:
        raise UserError(f"{path}:{node.start_mark.line + 1}: {prefix[:-1]}: an anchor that holds itself")
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path}:{node.start_mark.line + 1}: {prefix or 'the recipe'}: expected `key: value` lines")
    for key_node, value_node in node.value:
        key = prefix + str(key_node.value)
        origin = f"{path}:{key_node.start_mark.line + 1}"
        if key in entries:
            raise UserError(f"{origin}: {key} is given twice, first at {entries[key].origin}")
        if isinstance(value_node, yaml.MappingNode):
            _flatten(value_node, key + ".", path, entries, _above + (node,))
        else:
            loader = yaml.SafeLoader("")
            try:
                entries[key] = Entry(loader.construct_object(value_node, deep=True), origin)
            except yaml.YAMLError as error:
                raise UserError(f"{origin}: {key}: {error}") from None


def _known(sections: Mapping[str, type], find: Mapping[str, Find]) -> list[str]:
    keys = [field.name for field in fields(Config) if field.name not in sections]
    for name, section in sections.items():
        keys += [f"{name}.{field.name}" for field in fields(section)]
    return keys + [key for key, _ in find.values() if key not in keys]


def _place(resolved: Entries) -> Callable[[str], tuple[bool, int, bool]]:
    """Sort key: the top level first, then section by section, `name` leading."""
    sections = list(dict.fromkeys(key.rpartition(".")[0] for key in resolved))
    return lambda key: ("." in key, sections.index(key.rpartition(".")[0]), not key.endswith(".name"))


def _nearest(key: str, known: Sequence[str]) -> str:
    """The likeliest key: same last word in another section, or similar spelling."""
    last = key.rsplit(".", 1)[-1]
    same = [name for name in known if name.rsplit(".", 1)[-1] == last]
    near = (
        same
        or difflib.get_close_matches(key, known, 1, 0.6)
        or [
            name
            for name in known
            if name.rsplit(".", 1)[-1]
            in difflib.get_close_matches(last, [name.rsplit(".", 1)[-1] for name in known], 1, 0.6)
        ]
    )
    if near:
        return f"; did you mean {near[0]}?"
    head = key.split(".")[0]
    below = [name for name in known if name.startswith(head + ".")]
    return f"; there are: {', '.join(below or sorted({name.split('.')[0] for name in known}))}"


def _section(kind: type, prefix: str, entries: Entries, resolved: Entries, given: dict[str, Any] | None = None) -> Any:
    values = dict(given or {})
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        if field.name in values:
            continue
        key = prefix + field.name
        if key in entries:
            entry = entries[key]
            try:
                values[field.name] = convert(entry.value, hints[field.name])
            except ValueError as error:
                raise UserError(f"{entry.origin}: {_prefixed(key, entry)}{error}") from None
            resolved[key] = Entry(values[field.name], entry.origin)
        elif field.default is MISSING:
            raise UserError(f"{key}: the recipe must give this key")
        else:
            resolved[key] = Entry(field.default, DEFAULT)
    try:
        return kind(**values)
    except ValueError as error:
        key = prefix + str(error).split(":")[0]
        origin = resolved.get(key, Entry(None, DEFAULT)).origin
        raise UserError(f"{origin}: {prefix}{error}") from None


def _prefixed(key: str, entry: Entry) -> str:
    return "" if entry.origin == f"-o {key}" else f"{key}: "


def convert(value: Any, kind: Any) -> Any:
    """A YAML value as the declared type. Raises ValueError saying what was expected."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None or value == "":
            return None
        return convert(value, next(kind for kind in arguments if kind is not type(None)))
    if origin is typing.Literal:
        for choice in arguments:
            if value == choice and type(value) is type(choice):
                return choice
        # YAML reads a bare `none` as text, but `null`, `no` and `off` as other things.
        near = difflib.get_close_matches(str(value), [str(choice) for choice in arguments], 1)
        raise ValueError(
            f"expected one of {', '.join(map(str, arguments))}; got {value!r}"
            + (f"; did you mean {near[0]}?" if near else "")
        )
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"expected a list, got {value!r}")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(convert(item, arguments[0]) for item in value)
        if len(value) != len(arguments):
            raise ValueError(f"expected {len(arguments)} values, got {len(value)}")
        return tuple(convert(item, kind) for item, kind in zip(value, arguments))
    if kind is Span:
        return value if isinstance(value, Span) else Span.parse(value)
    if kind is float:
        return _float(value)
    if kind is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if (
        (kind is bool
        and not isinstance(value, bool))
        or (kind is int
        and (not isinstance(value, int) or isinstance(value, bool)))
    ):
        raise ValueError(f"expected {'true or false' if kind is bool else 'a whole number'}, got {value!r}")
    if not isinstance(value, kind):
        raise ValueError(f"expected {'text' if kind is str else kind.__name__}, got {value!r}")
    return value


def _float(value: Any) -> float:
    # YAML 1.1 reads 1e-4 as text: only 1.0e-4 is a number to it.
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected a number, got {value!r}")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"expected a number, got {value!r}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Span) else value
