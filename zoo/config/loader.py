"""Loading of recipes: YAML files and `-o key=value` overrides to a frozen Config.

Every error names the file and line, or the override, and the most similar valid key.
"""

import os
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from zoo.config import budgeted_yaml
from zoo.config.schema import DEFAULT_NAMES, Config, Duration
from zoo.data.convert import convert, plain
from zoo.data.errors import Option, Part, UserError, parsing, similar_name, similar_path
from zoo.data.fields import SettingError, is_path
from zoo.data.formats import regular

DEFAULT = "default"
VARIANTS = ("task.loss",)  # on which the keys of their sections depend
PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED_RECIPES = PACKAGE / "configs"


class Entry(NamedTuple):
    """Value of a key and where it comes from: "configs/tsm_demo.yaml:7", an option of the user or "default".

    Attributes:
        outdated: whether it was written for another data set or model than the recipe names now.
        written_for: the data set, model, loss or optimizer that the recipe named then; "" if it names the same.
    """

    value: Any
    origin: str | Option
    outdated: bool = False
    written_for: str = ""


Entries = dict[str, Entry]  # dotted key -> entry
# Key that names the owner of a section, perhaps a key of the section that names a variant; the function of their values
# that returns the settings class; perhaps one of a settings class and a key that returns which variant has the key.
Lookup = tuple[tuple[str, ...], Callable[..., type]] | tuple[tuple[str, ...], Callable[..., type], Callable[..., str]]


def read(path: str) -> Entries:
    """Read a recipe, on top of the recipe that its key `base` names, a file beside it or one of the zoo.

    Args:
        path: File; a recipe that is shipped with the zoo is found from any folder.
    """
    return _read(find_recipe(path), ())


def parse_recorded(recipe: str, origin: str) -> Entries:
    """Parse the text of a resolved recipe, whose sections are one level deep.

    Args:
        recipe: YAML, as `render` returns it.

    Raises:
        yaml.YAMLError, AttributeError: The text is no such recipe.
    """
    entries: Entries = {}
    for key, value in budgeted_yaml.safe_load(recipe).items():
        pairs = {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
        entries.update((name, Entry(item, origin)) for name, item in pairs.items())
    return entries


def merge(entries: Entries, changes: Entries) -> Entries:
    """Return entries with changes applied: a section set to null loses its keys, and one of its keys ends its null.

    Where they name another data set, model, loss or schedule, `build` leaves out the keys of the section that this one
    does not have.
    """
    nulls = {key for key, entry in changes.items() if entry.value is None}
    sections = {key.split(".")[0] for key in changes if "." in key}
    outdated = {
        section: str(_name(name, entries))
        for section in sections
        if (name := f"{section}.name") in changes and _name(name, entries) not in (None, changes[name].value)
    }
    for variant in VARIANTS:
        if variant in changes and (variant not in entries or entries[variant].value != changes[variant].value):
            outdated[variant.split(".")[0]] = str(_name(variant, entries) or DEFAULT)
    kept = {
        key: _outdated(entry, outdated[section]) if (section := key.split(".")[0]) in outdated else entry
        for key, entry in entries.items()
        if key.split(".")[0] not in nulls and not (key in sections and entry.value is None)
    }
    return {**kept, **changes}


def _outdated(entry: Entry, written_for: str) -> Entry:
    return entry._replace(outdated=True, written_for=entry.written_for or written_for)


def find_recipe(name: str, folder: str = "", chain: tuple[str, ...] = ()) -> str:
    """Return the path of a recipe: of the file of this name, else of the shipped recipe, else the name in the folder.

    `tsm_demo`, `tsm_demo.yaml` and `configs/tsm_demo.yaml` name the same shipped recipe.

    Args:
        name: with or without the suffix .yaml.
        folder: that the name is relative to; "" for the current one.
        chain: files that are not meant: a recipe tsm_demo.yaml with `base: tsm_demo` changes the shipped one.
    """
    path = os.path.normpath(os.path.join(folder, name)) if folder else name
    own = [each for each in (path, f"{path}.yaml") if os.path.isfile(each) and os.path.realpath(each) not in chain]
    return (own or [shipped_recipe(name) or path])[0]


def shipped_recipe(name: str) -> str | None:
    """Return the path of the shipped recipe of a name; None if there is none."""
    path = SHIPPED_RECIPES / name.removeprefix("configs/")
    return next((str(each) for each in (path, Path(f"{path}.yaml")) if each.is_file()), None)


def shipped_recipes() -> dict[str, str]:
    """Return what each recipe of the zoo is for, the first line of its file, by name: tsm_demo, reports/..."""
    found = {}
    for path in sorted(SHIPPED_RECIPES.rglob("*.yaml")):
        name = str(path.relative_to(SHIPPED_RECIPES).with_suffix(""))
        found[name] = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return found


def overrides(pairs: Sequence[str]) -> Entries:
    """Parse `key=value` arguments, with values in YAML."""
    entries: Entries = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise UserError(Option(pair), ": expected key=value, for example ", Option("optim.lr", 0.01))
        if key.strip() == "base":
            raise UserError(Option(pair), ": base is a key of recipes in files; another recipe is named by -c")
        try:
            value = budgeted_yaml.safe_load(text) if text.strip() else ""
        except yaml.YAMLError as error:
            raise UserError(
                Option(key, _shortened(text)), f": the value is not valid YAML; quote it ({_reason(error)})"
            ) from None
        if isinstance(value, dict):
            raise UserError(Option(pair), f": give the keys below {key} one by one, ", Option(f"{key}.NAME", "VALUE"))
        entries[key.strip()] = Entry(value, Option(key.strip()))
    return entries


def build(entries: Entries, lookups: Mapping[str, Lookup]) -> tuple[Config, Entries]:
    """Build the Config.

    Args:
        entries: Entries of the recipe, with all changes applied.
        lookups: By section, where its settings class comes from if not from zoo/config/schema.py: `model`, say, has
            the settings of the model that `model.name` names.

    Returns:
        The Config, and value and origin of every key, defaults included.
    """
    owners = {key for keys, *_ in lookups.values() for key in keys}
    defaults = {key: Entry(name, DEFAULT) for key, name in DEFAULT_NAMES.items() if key in owners}
    entries = {**defaults, **entries}
    sections = _sections(entries, lookups)
    known = _known_keys(sections, lookups)
    entries = {key: entry for key, entry in entries.items() if not entry.outdated or key in known}
    _check_keys(entries, known, lookups, sections)
    _check_inherited(entries, lookups, sections)
    resolved: Entries = {}
    values: dict[str, Any] = {
        field.name: _settings(sections[field.name], f"{field.name}.", entries, resolved)
        for field in fields(Config)
        if field.name in sections
    }
    for (key, *_), *_ in lookups.values():
        resolved[key] = entries[key]
    config = _settings(Config, "", entries, resolved, values)
    return config, {key: resolved[key] for key in sorted(resolved, key=_sort_key(resolved))}


def without_paths(entries: Entries, lookups: Mapping[str, Lookup]) -> Entries:
    """Return the entries of a recorded recipe that hold on every machine, sorted: no value can be a path."""
    sections = _sections(entries, lookups)
    _check_keys(entries, _known_keys(sections, lookups), lookups, sections)
    kept = {key for keys, *_ in lookups.values() for key in keys}
    for prefix, settings_class in {"": Config, **{f"{name}.": section for name, section in sections.items()}}.items():
        hints = typing.get_type_hints(settings_class, include_extras=True)
        kept |= {prefix + name for name, hint in hints.items() if not is_path(hint)}
    return {key: entries[key] for key in sorted(entries, key=_sort_key(entries)) if key in kept}


def render(resolved: Entries) -> str:
    """Format a resolved recipe as YAML, with the origin of each value as a comment."""
    lines, section = [], ""
    for key, entry in resolved.items():
        head, _, tail = key.rpartition(".")
        if head != section:
            lines.append(f"{head}:")
            section = head
        indent = "  " if head else ""
        lines.append(f"{f'{indent}{tail}: {yaml_text(entry.value)}':<44} # {entry.origin}")
    return "\n".join(lines) + "\n"


def differences(old: Entries, new: Entries) -> dict[str, str]:
    """Return a line, `key: old -> new`, by key for every key whose value differs."""
    before = {key: plain(entry.value) for key, entry in old.items()}
    after = {key: plain(entry.value) for key, entry in new.items()}
    return {
        key: f"{key}: {before.get(key)} -> {after.get(key)}"
        for key in sorted({**before, **after})
        if before.get(key) != after.get(key)
    }


def _read(path: str, chain: tuple[str, ...], named_by: str = "") -> Entries:
    """Read a recipe and its bases.

    Args:
        named_by: the beginning of a message: file, line and key that name this one.
    """
    if not os.path.exists(path):
        hint = similar_name(Path(path).stem, shipped_recipes()) or similar_path(path)
        listed = "; zoo train --list shows those of the zoo"
        raise UserError(f"{named_by}{path}: there is no such recipe{hint or listed}")
    with parsing(f"{named_by}{path}: cannot read this recipe"):
        real_path = os.path.realpath(path)
        if real_path in chain:
            raise UserError(f"{path}: base: the recipe is its own base")
        text = regular.read(path)
    try:
        root = budgeted_yaml.compose(text.decode())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML: {error}") from None
    entries: Entries = {}
    if root is not None:
        _flatten(root, "", path, entries)
    base = entries.pop("base", None)
    if base is None or base.value is None:
        return entries
    if not isinstance(base.value, str):
        raise UserError(f"{base.origin}: base: expected the name of one recipe, got {base.value!r}")
    chain = (*chain, real_path)
    base_path = find_recipe(base.value, os.path.dirname(path), chain)
    return merge(_read(base_path, chain, f"{base.origin}: base: "), entries)


def _flatten(node: yaml.Node, prefix: str, path: str, entries: Entries) -> None:
    """Add the values below a YAML node to `entries`, by dotted key."""
    line = f"{path}:{node.start_mark.line + 1}"
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{line}: {prefix or 'the recipe'}: expected `key: value` lines")
    for key_node, value_node in node.value:
        key = prefix + str(key_node.value)
        origin = f"{path}:{key_node.start_mark.line + 1}"
        if key in entries:
            raise UserError(f"{origin}: {key} is given twice, first at {entries[key].origin}")
        if isinstance(value_node, yaml.MappingNode):
            _flatten(value_node, key + ".", path, entries)
        else:
            try:
                value = budgeted_yaml.construct(value_node)
            except yaml.YAMLError as error:
                raise UserError(f"{origin}: {key}: {error}") from None
            entries[key] = Entry(value, origin)


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _reason(error: yaml.YAMLError) -> str:
    """Return what is wrong, without the place in the text."""
    return getattr(error, "problem", None) or str(error)


def _name(key: str, entries: Entries) -> Any:
    """Return the value of a key such as data.name, its default, or None."""
    return entries[key].value if key in entries else DEFAULT_NAMES.get(key)


def _sections(entries: Entries, lookups: Mapping[str, Lookup]) -> dict[str, type]:
    sections: dict[str, type] = {}
    hints = typing.get_type_hints(Config)
    for field in fields(Config):
        if field.name in lookups:
            (key, *variants), settings_class = lookups[field.name][:2]
            if key not in entries:
                raise UserError(f"{key}: the recipe must give this key; name a recipe with -c FILE")
            given = [key, *(variant for variant in variants if variant in entries)]
            values = [str(entries[name].value) for name in given]
            for count, name in enumerate(given, 1):  # one by one: the message names the key that is wrong
                try:
                    sections[field.name] = settings_class(*values[:count])
                except UserError as error:
                    raise UserError(*_location(name, entries[name]), error) from None
        elif is_dataclass(hints[field.name]) and hints[field.name] is not Duration:
            sections[field.name] = hints[field.name]
        elif any(key.startswith(f"{field.name}.") for key in entries):  # an optional section, or a value
            section = _class_of(hints[field.name])
            if section:
                sections[field.name] = section
    return sections


def _class_of(hint: Any) -> type | None:
    """Return the settings class of an optional section from its type hint, None if it is that of a value."""
    return next((kind for kind in typing.get_args(hint) if isinstance(kind, type) and is_dataclass(kind)), None)


def _known_keys(sections: Mapping[str, type], lookups: Mapping[str, Lookup]) -> list[str]:
    known = [field.name for field in fields(Config) if field.name not in sections]
    for name, section in sections.items():
        known += [f"{name}.{field.name}" for field in fields(section)]
    return known + [key for (key, *_), *_ in lookups.values() if key not in known]


def _check_keys(
    entries: Entries, known: Sequence[str], lookups: Mapping[str, Lookup], sections: Mapping[str, type]
) -> None:
    for key, entry in entries.items():
        if key in known:
            continue
        if key in sections:
            example = next(each for each in known if each.startswith(f"{key}."))
            raise UserError(*_location(key, entry), f"a section, which has keys such as {example} and no value")
        from zoo.config.suggestions import suggestion  # for mistakes alone

        section, _, name = key.partition(".")
        owners = [owner for owner in lookups.get(section, ((),))[0] if owner in entries]
        of_owner = " for " + ", ".join(f"{owner}={entries[owner].value}" for owner in owners) if owners else ""
        owner = lookups[section][2:] if section in sections and section in lookups else ()
        other = owner[0](sections[section], name) if owner else ""
        hint = f"; it belongs to {other}" if other else suggestion(key, known)
        raise UserError(*_location(key, entry), f"unknown key{of_owner}{hint}")


def _check_inherited(entries: Entries, lookups: Mapping[str, Lookup], sections: Mapping[str, type]) -> None:
    """Raise UserError for a value that was chosen for another owner of its section, where their defaults differ."""
    for key, entry in entries.items():
        section, _, name = key.partition(".")
        if not entry.written_for or name not in getattr(sections.get(section), "chosen_anew", ()):
            continue
        (owner, *_), settings_class = lookups[section][:2]
        usual = getattr(sections[section], name)
        if usual != getattr(settings_class(entry.written_for), name):
            raise UserError(
                *_location(key, entry),
                f"{entry.value} was chosen for {owner}={entry.written_for}; give {key} for {entries[owner].value}, "
                "for example ",
                Option(key, usual),
            )


def _sort_key(resolved: Entries) -> Callable[[str], tuple[bool, int, bool]]:
    """Return the sort key of a resolved recipe: top level first, then section by section, `name` first in each."""
    sections = list(dict.fromkeys(key.rpartition(".")[0] for key in resolved))
    return lambda key: ("." in key, sections.index(key.rpartition(".")[0]), not key.endswith(".name"))


def _settings(
    settings_class: type, prefix: str, entries: Entries, resolved: Entries, given: Mapping[str, Any] | None = None
) -> Any:
    """Build the settings of one section from entries and defaults, and add them to `resolved`.

    given: values of fields that are built already.
    """
    values = dict(given or {})
    hints = typing.get_type_hints(settings_class)
    for field in fields(settings_class):
        if field.name in values:
            continue
        key = prefix + field.name
        if key in entries:
            entry = entries[key]
            try:
                values[field.name] = convert(entry.value, hints[field.name])
            except ValueError as error:
                raise UserError(*_location(key, entry), error) from None
            resolved[key] = Entry(values[field.name], entry.origin)
        elif field.default is MISSING:
            raise UserError(f"{key}: the recipe must give this key")
        else:
            resolved[key] = Entry(field.default, DEFAULT)
    try:
        return settings_class(**values)
    except SettingError as error:
        key = prefix + error.name
        raise UserError(*_location(key, resolved.get(key, Entry(None, DEFAULT))), error.reason) from None
    except ValueError as error:  # of a settings class of another package
        raise UserError(f"{prefix.removesuffix('.')}: {error}") from None


def yaml_text(value: Any) -> str:
    return yaml.safe_dump(plain(value), default_flow_style=True, width=10_000).replace("\n...", "").strip()


def _location(key: str, entry: Entry) -> tuple[Part, str]:
    """Return the start of an error message: origin and key, once if the origin is the option of this key."""
    is_own = entry.origin in (Option(key), Option(f"--{key}"))
    return entry.origin, ": " if is_own else f": {key}: "
