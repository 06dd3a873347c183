"""The keys of recipes: what each means, what it may be and what it is by default, for a terminal and docs/keys.md."""

import textwrap
import typing
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Literal, NamedTuple

from zoo import data, losses, optim
from zoo.config.loader import DEFAULT, Entries, yaml_text
from zoo.config.schema import DEFAULT_NAMES, Config, GroupRule, Train, Upstream
from zoo.config.suggestions import suggestion
from zoo.data import plugins
from zoo.data.convert import description
from zoo.data.errors import UserError
from zoo.data.fields import meanings
from zoo.models import list_models, load_spec
from zoo.run.request import FIND
from zoo.table import table

NAMING = {  # keys that select the settings class of their section, with default and meaning
    "model.name": ("", "Model, a folder of zoo/models."),
    "data.name": ("", "Data set."),
    "task.loss": ("that of the task", "Loss of the model's task, a file of zoo/losses/<task>."),
    "optim.name": (DEFAULT_NAMES["optim.name"], "Optimizer, a file of zoo/optim."),
}
BASE = "Recipe that this one changes: a file beside it, or a recipe of the zoo."


class Owner(NamedTuple):
    """Settings class of a section.

    Attributes:
        key: whose value selects the class, one of NAMING; "" where the section has one class.
        name: this value; of a loss, behind its task: "segment/dice".
    """

    section: str
    settings: type
    key: str = ""
    name: str = ""


class Key(NamedTuple):
    """A key, as some recipes have it.

    Attributes:
        default: in YAML; "" where a recipe must give the key.
        meaning: "" for a key of an installed package without a Doc.
        where: of which values of a key of NAMING; "" for all recipes.
    """

    name: str
    values: str
    default: str
    meaning: str
    where: str = ""


def owners() -> list[Owner]:
    """Return the settings classes of all sections."""
    found = [Owner("", Config)]
    found += [Owner("model", load_spec(name).Arch, "model.name", name) for name in list_models()]
    found += [Owner("data", data.find(name).Settings, "data.name", name) for name in data.names()]
    for task, own in losses.LOSSES.items():
        names = plugins.names(f"zoo.losses.{task}", own)
        found += [Owner("task", losses.load_loss(task, name), "task.loss", f"{task}/{name}") for name in names]
    found.append(Owner("train", Train))
    optimizers = dict.fromkeys([*optim.OPTIMIZERS, *plugins.names("zoo.optimizers", optim.OPTIMIZERS)])
    found += [Owner("optim", optim.load_settings(name), "optim.name", name) for name in optimizers]
    return [*found, Owner("optim.groups", GroupRule), Owner("upstream", Upstream)]


def of_recipe(resolved: Entries) -> list[Owner]:
    found = [Owner("", Config), Owner("train", Train), Owner("optim.groups", GroupRule), Owner("upstream", Upstream)]
    for section, (names, find, *_) in FIND.items():
        values = [str(resolved[name].value) for name in names]
        found.append(Owner(section, find(*values), names[-1], values[-1]))
    return found


def names_of(key: str, among: Sequence[Owner]) -> list[str]:
    """Return the values of a key that selects a settings class."""
    return list(dict.fromkeys(owner.name.split("/")[-1] for owner in among if owner.key == key))


def catalog(among: Sequence[Owner]) -> list[Key]:
    """Return the keys of settings classes, first those that all of a section have; equal ones are there once."""
    groups: dict[Key, list[Owner]] = {Key("base", "text or null", "null", BASE): [Owner("", Config)]}
    for owner in among:
        if owner.key:
            choices = description(Literal[tuple(names_of(owner.key, owners()))])
            naming = Key(owner.key, choices, *NAMING[owner.key])
            groups.setdefault(naming, []).append(owner)
        for key in _keys(owner):
            groups.setdefault(key, []).append(owner)
    sections = [owner.section for owner in among]
    keys = [
        key
        if len(had) == sections.count(had[0].section)
        else key._replace(where=f"{had[0].key}: {', '.join(owner.name for owner in had)}")
        for key, had in groups.items()
    ]
    return sorted(keys, key=lambda key: key.where != "")


def _keys(owner: Owner) -> list[Key]:
    hints, known = typing.get_type_hints(owner.settings, include_extras=True), meanings(owner.settings)
    return [
        Key(
            f"{owner.section}.{field.name}" if owner.section else field.name,
            description(hints[field.name]),
            "" if field.default is MISSING else yaml_text(field.default),
            known.get(field.name, ""),
        )
        for field in fields(owner.settings)
        if f"{owner.section}.{field.name}" != owner.key
    ]


def explain(name: str, resolved: Entries | None, width: int) -> str:
    """Return what a key or the keys of a section are, and what a recipe has for them.

    Args:
        name: such as train.batch or train.
        resolved: of the recipe; None for all recipes.
    """
    every = catalog(owners())
    keys = catalog(of_recipe(resolved)) if resolved else every
    found = [key for key in keys if key.name == name]
    section = [key for key in keys if key.name.rpartition(".")[0] == name]
    if not found and not section:
        elsewhere = [key for key in every if key.name == name]
        if elsewhere:
            raise UserError(f"--explain: the recipe has no {name}; it belongs to {elsewhere[0].where}")
        raise UserError(f"--explain: there is no key {name}{suggestion(name, [key.name for key in every])}")
    blocks = [_block(key, resolved, width) for key in found if not section]
    lines = [line for block in blocks for line in ["", *block]]
    if section:
        lines += textwrap.wrap(f"{name}: {found[0].meaning}", width)
        column = "value" if resolved else "default"
        rows = [
            (key.name.rpartition(".")[2], _value(key, resolved), key.meaning + f" ({key.where})" * bool(key.where))
            for key in section
        ]
        lines += ["", *table(rows, ("key", column, "meaning"), width=width)]
    return "\n".join(lines).strip("\n")


def _value(key: Key, resolved: Entries | None) -> str | None:
    return yaml_text(resolved[key.name].value) if resolved and key.name in resolved else key.default or None


def _block(key: Key, resolved: Entries | None, width: int) -> list[str]:
    facts = {"values": key.values, "default": key.default or "none: a recipe must give it", "with": key.where}
    if resolved and key.name in resolved:
        origin = resolved[key.name].origin
        facts = {"value": f"{_value(key, resolved)}, {'the' if origin == DEFAULT else 'from'} {origin}", **facts}
    lines = [key.name, *textwrap.wrap(key.meaning, width, initial_indent="  ", subsequent_indent="  ")]
    for title, fact in facts.items():
        if fact:
            lines += textwrap.wrap(fact, width, initial_indent=f"  {title:<9}", subsequent_indent=" " * 11)
    return lines
