"""Settings of a run beside its case: what repeats should have in common, and what a resume may have changed."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zoo.logs.journal import Event

Settings = Mapping[str, str]  # name, with dots for what is inside of a field -> value; unknown ones are left out

# Fields of the events `begin` and `resume`. Those of METHOD decide what is measured: results from before and after a
# resume that changed one belong to no case.
METHOD = ("framework", "device", "precision", "compute", "level", "channels_last", "compile", "loss_scale", "optimizer",
          "ranks", "batch", "accumulate", "global_batch")  # fmt: skip
OTHERS = ("loader", "workers", "threads", "seed", "classes", "outputs", "arch", "recipe_sha256")
NULLABLE = ("level", "loss_scale", "optimizer", "arch")  # where null means that there is none; elsewhere, not known
DIGITS = 12  # of a digest that are kept


def read(event: Event) -> Settings:
    """Return the settings that an event, `begin` or `resume`, records."""
    found = dict(_flat({name: event[name] for name in (*METHOD, *OTHERS) if name in event}))
    if "device" in found:
        found["device"] = re.sub(r"^(\w+):\d+", r"\1", found["device"])  # cuda:0 and cuda:1 are alike
    if "recipe_sha256" in found:
        found["recipe_sha256"] = found["recipe_sha256"][:DIGITS]

    return found


def differing(several: Sequence[Settings]) -> dict[str, list[str]]:
    """Return the settings that are not the same in all, each with its values; an unknown value is not another one."""
    names = dict.fromkeys(name for settings in several for name in settings)
    found = {name: list(dict.fromkeys(one[name] for one in several if name in one)) for name in names}
    return {name: values for name, values in found.items() if len(values) > 1}


def changes(begin: Event, resumes: Iterable[Event]) -> list[str]:
    """Return the names of the settings that a resume changed; those that it does not record are as they were."""
    first = read(begin)
    names = [name for resume in resumes for name in differing([first, read(resume)])]
    return list(dict.fromkeys(names))


def is_method(name: str) -> bool:
    """Return whether a setting decides what is measured."""
    return name.partition(".")[0] in METHOD


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values as text, those inside dictionaries with dots."""
    for key, value in fields.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif value is not None or name.partition(".")[0] in NULLABLE:
            yield name, "none" if value is None else value if isinstance(value, str) else json.dumps(value)
