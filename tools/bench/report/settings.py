"""Settings of a run beside its case: what repeats should have in common, and what a resume may have changed."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zoo.distributed.environment import OF_ONE_HOST
from zoo.logs.journal import Event

Settings = Mapping[str, str]  # name, with dots for what is inside of a field -> value; unknown ones are left out

# Fields of the events `begin` and `resume`. Those of METHOD decide what is measured: results from before and after a
# resume that changed one belong to no case.
METHOD = ("framework", "device", "precision", "compute", "level", "channels_last", "compile", "loss_scale", "optimizer",
          "ranks", "batch", "accumulate", "global_batch")  # fmt: skip
OTHERS = ("framework_version", "launcher", "loader", "workers", "threads", "eval_batch", "eval_every", "epochs", "seed",
          "warmup_epochs", "classes", "outputs", "train_samples", "arch", "recipe_sha256")  # fmt: skip
NULLABLE = ("level", "loss_scale", "optimizer", "arch")  # where null means that there is none; elsewhere, not known
OF_HOSTS = ("cpu", "threads", "driver")
DIGITS = 12  # of a commit and of a digest that are kept
NOT_SET = "not set"  # a variable of an environment that is recorded without it


def read(event: Event, speed: Event | None = None) -> Settings:
    """Return the settings that an event records.

    Args:
        event: `begin` or `resume`.
        speed: event `speed` of the run, None without one.
    """
    fields = {name: event[name] for name in (*METHOD, *OTHERS) if name in event}
    if speed:
        fields["speed"] = {name: speed.get(name) for name in ("drop", "count")}
    found = dict(_flat(fields))
    if "device" in found:
        found["device"] = re.sub(r"^(\w+):\d+", r"\1", found["device"])  # cuda:0 and cuda:1 are alike
    if "recipe_sha256" in found:
        found["recipe_sha256"] = found["recipe_sha256"][:DIGITS]
    git = event.get("git") or {}
    if git.get("commit"):
        found["commit"] = git["commit"][:DIGITS] + (" with changes" if git.get("dirty") else "")
    return {**found, **_of_hosts(event.get("hosts") or ())}


def differing(several: Sequence[Settings]) -> dict[str, list[str]]:
    """Return the settings that are not the same in all, each with its values; an unknown value is not another one."""
    found = {}
    for name in dict.fromkeys(name for settings in several for name in settings):
        values = list(dict.fromkeys(value for settings in several if (value := _value(settings, name)) is not None))
        if len(values) > 1:
            found[name] = values
    return found


def changes(begin: Event, resumes: Iterable[Event]) -> list[str]:
    """Return the names of the settings that a resume changed; those that it does not record are as they were."""
    first = read(begin)
    names = [name for resume in resumes for name in differing([first, read(resume)])]
    return list(dict.fromkeys(names))


def is_method(name: str) -> bool:
    """Return whether a setting decides what is measured."""
    return name.partition(".")[0] in METHOD or name in ("hosts", "hosts.accelerators")


def _of_hosts(hosts: Sequence[Any]) -> dict[str, str]:
    """Return number, hardware, libraries and environment of hosts; different values of a setting are joined."""
    values: dict[str, set[str]] = {}
    for host in hosts:
        fields = {"hosts": {name: host.get(name) for name in OF_HOSTS}}
        fields |= {name: host[name] for name in ("libraries", "environment") if name in host}
        for name, value in _flat(fields):
            values.setdefault(name, set()).add(value)
        for accelerator in host.get("accelerators") or ():
            values.setdefault("hosts.accelerators", set()).add(str(accelerator.get("name")))
    joined = {name: " + ".join(sorted(of_name)) for name, of_name in values.items()}
    variables = {f"environment.{name}" for name in OF_ONE_HOST}  # which devices, not how many or of which kind
    kept = {name: value for name, value in joined.items() if name not in variables}
    return {**kept, "hosts": str(len(hosts))} if hosts else {}


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values as text, those inside dictionaries with dots; for a dictionary itself `recorded`."""
    for key, value in fields.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield name, "recorded"
            yield from _flat(value, f"{name}.")
        elif value is not None or name.partition(".")[0] in NULLABLE:
            yield name, "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def _value(settings: Settings, name: str) -> str | None:
    is_unset = name.startswith("environment.") and "environment" in settings
    return settings.get(name, NOT_SET if is_unset else None)
