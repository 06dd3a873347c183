"""Parts of a recipe by name: those of this project, and those of installed packages, which entry points name.

A recipe names a part, and what it runs is code that the user has installed. A part of this project comes before one of
the same name in a package. Nothing is imported until it is named.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from zoo.data.errors import UserError, known_names


@cache
def installed(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group, such as zoo.models, by name."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=group):
        found.setdefault(entry.name, []).append(entry)
    return found


def names(group: str, own: Iterable[str]) -> list[str]:
    """Return the sorted names of all parts, given those of this project."""
    return sorted({*own, *installed(group)})


def locate(kind: str, group: str, own: Mapping[str, str], name: str) -> str:
    """Return the dotted name of the module or package of a part.

    Args:
        group: of the entry points of installed packages.
    """
    if name in own:
        return own[name]
    entries = installed(group).get(name, [])
    if not entries:
        raise UserError(f"there is no {kind} {name!r}{known_names(name, names(group, own))}")
    if len(entries) > 1:
        owners = " and ".join(sorted(entry.dist.name if entry.dist else entry.value for entry in entries))
        raise UserError(f"the {kind} {name} is in several installed packages: {owners}; uninstall all but one of them")
    return entries[0].value


def load(kind: str, group: str, own: Mapping[str, str], name: str, *contents: str) -> ModuleType:
    """Import and return the module of a part."""
    path = locate(kind, group, own, name)
    with importing(f"the {kind} {name}", path):
        module = importlib.import_module(path)
    lacking = [each for each in contents if not hasattr(module, each)]
    if lacking:
        raise UserError(f"{module.__file__} lacks {', '.join(lacking)}, which the {kind} {name} needs")
    return module


@contextmanager
def importing(part: str, path: str) -> Iterator[None]:
    """Raise UserError where a module of an installed package cannot be imported."""
    try:
        yield
    except ImportError as error:
        if path.startswith("zoo."):
            raise
        raise UserError(f"{part} of the package {path} cannot be imported: {error}") from None
