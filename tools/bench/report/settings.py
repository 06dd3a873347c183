"""Settings of a run beside its case: what repeats should have in common, and what a resume may have changed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zoo.bench.report.fields import MAX_TEXT, field, finite, items, text
from zoo.distributed.variables import OF_ONE_HOST
from zoo.logs.journal import Event

Settings = Mapping[
    str, str
]  # name, with dots for what is inside of a field -> value as text; unknown ones are left out

# Fields of the events `begin` and `resume`. Those of METHOD decide what is measured: results from before and after a
# resume that changed one belong to no case.
METHOD = ("framework", "device", "precision", "compute", "level", "channels_last", "compile", "loss_scale", "optimizer",
          "ranks", "batch", "accumulate", "global_batch")  # fmt: skip
OTHERS = ("framework_version", "launcher", "loader", "workers", "threads", "eval_batch", "eval_every", "epochs", "seed",
          "warmup_epochs", "classes", "outputs", "train_samples", "arch", "recipe_sha256")  # fmt: skip
NULLABLE = ("level", "loss_scale", "optimizer", "arch")  # where null means that there is none; elsewhere, not known
HOST_FIELDS = ("cpu", "threads", "driver")
DIGITS = 12  # of a commit and of a digest that are kept
NOT_SET = "not set"  # a variable of an environment that is recorded without it


def read(event: Event, speed: Event | None = None) -> Settings:
    """Return the settings that an event records.

    Args:
        event: `begin` or `resume`.
        speed: event `speed` of the run, None without one.
    """
    found: dict[str, str] = {}
    for name in (*METHOD, *OTHERS):
        _add(found, name, event.get(name, ...))
    if "device" in found:
        found["device"] = re.sub(r"^(\w+):\d+", r"\1", found["device"])  # cuda:0 and cuda:1 are alike
    if "recipe_sha256" in found:
        found["recipe_sha256"] = found["recipe_sha256"][:DIGITS]
    commit = text(event, "git", "commit")
    if commit:
        found["commit"] = commit[:DIGITS] + (" with changes" if field(event, "git", "dirty") else "")
    for name in ("drop", "count"):
        _add(found, f"speed.{name}", (speed or {}).get(name, ...))
    return {**found, **_of_hosts(items(event, "hosts"))}


def _of_hosts(hosts: Sequence[Any]) -> dict[str, str]:
    """Return number, hardware, libraries and environment of hosts; different values of a setting are joined."""
    values: dict[str, set[str]] = {}
    for host in hosts:
        one: dict[str, str] = {}
        for name in HOST_FIELDS:
            _add(one, f"hosts.{name}", field(host, name) or ...)
        for name in ("libraries", "environment"):
            _add(one, name, field(host, name))
        devices = [text(accelerator, "name") for accelerator in items(host, "accelerators")]
        for name, value in (*one.items(), *(("hosts.accelerators", device) for device in devices if device)):
            values.setdefault(name, set()).add(value)
    joined = {name: " + ".join(sorted(of_name)) for name, of_name in values.items()}
    variables = {f"environment.{name}" for name in OF_ONE_HOST}  # which devices, not how many or of which kind
    kept = {name: value for name, value in joined.items() if name not in variables}
    return {"hosts": str(len(hosts)), **kept} if hosts else {}


def _add(found: dict[str, str], name: str, value: Any) -> None:
    """Add a value as text, or those inside a dictionary; `...` and what no journal has are left out."""
    if isinstance(value, Mapping):
        found[name] = "recorded"
        for key, inner in value.items():
            if not isinstance(inner, Mapping):
                _add(found, f"{name}.{key}", inner)
    elif value is None:
        found |= {name: "none"} if name.partition(".")[0] in NULLABLE else {}
    elif isinstance(value, list):
        found[name] = f"[{', '.join(part for part in map(_scalar, value) if part)}]"
    elif (shown := _scalar(value)) is not None:
        found[name] = shown


def _scalar(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return " ".join(value[:MAX_TEXT].split())
    number = finite(value)
    return None if number is None else f"{number:.12g}"


def differing(several: Sequence[Settings]) -> dict[str, list[str]]:
    """Return the settings that are not the same in all, each with its values; an unknown value is not another one."""
    found = {}
    for name in dict.fromkeys(name for settings in several for name in settings):
        values = list(dict.fromkeys(value for settings in several if (value := _value(settings, name)) is not None))
        if len(values) > 1:
            found[name] = values
    return found


def _value(settings: Settings, name: str) -> str | None:
    is_unset = name.startswith("environment.") and "environment" in settings
    return settings.get(name, NOT_SET if is_unset else None)


def changes(begin: Event, resumes: Iterable[Event]) -> list[str]:
    """Return the names of the settings that a resume changed; those that it does not record are as they were."""
    first = read(begin)
    names = [name for resume in resumes for name in differing([first, read(resume)])]
    return list(dict.fromkeys(names))


def is_method(name: str) -> bool:
    """Return whether a setting decides what is measured."""
    return name.partition(".")[0] in METHOD or name in ("hosts", "hosts.accelerators")
