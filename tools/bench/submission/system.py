"""system_information.json: its fields from the record of a run, and what is wrong with anybody's file."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.bench.submission.rules import FIELDS
from zoo.logs.journal import Event

CAPACITY = re.compile(r"(\d+\s*[x*×]\s*)?\d+(\.\d+)?\s*[KMGTP](i?B)?", re.IGNORECASE)
PLACEHOLDER = re.compile(r"[\sxX?*._<>—–-]*|none|null|unknown|todo|tb[ad]|n/?a|not (recorded|known)", re.IGNORECASE)
STAND_INS = ("0 GB", "not recorded")  # values that a demo has for what is not known
LIBRARIES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "cann": "CANN"}
FRAMEWORKS = {"torch": "PyTorch", "paddle": "PaddlePaddle", "mindspore": "MindSpore"}


def describe(begin: Event, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the 15 fields, None where neither the run nor the command line tells.

    A run on CPUs has no accelerators: their number is 0, their name `none` and their memory `0 GB`.

    Args:
        begin: the event `begin` of a run; the hosts are alike, so the first one is described.
        given: fields of the command line, which take precedence.
    """
    hosts = begin["hosts"]
    host = hosts[0]
    used = host.get("accelerators") or []
    memory = used[0].get("memory_bytes") if used else 0
    fields = {
        "accelerator_memory_capacity": None if memory is None else f"{round(memory / 2**30)} GB",
        "accelerator_name": used[0]["name"] if used else "none",
        "accelerators_per_node": max(len(used), host.get("accelerators_present") or 0) if used else 0,
        "host_memory_capacity": _memory(host.get("memory_bytes")),
        "host_processor_core_count": host.get("cores"),
        "host_processor_name": host.get("cpu"),
        "host_processors_per_node": host.get("sockets"),
        "host_storage_capacity": _storage(host.get("storage_bytes")),
        "host_storage_type": host.get("storage_type"),
        "number_of_nodes": len(hosts),
        "operating_system": host.get("os"),
        "software_stack": _software(begin, host),
        "submitter": None,
        "hardware_name": host.get("hardware"),
        "hardware_type": None,
    }
    return {**fields, **{name: value for name, value in given.items() if value is not None}}


def unknown(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields without a value."""
    return [name for name in FIELDS if fields.get(name) is None]


def render(fields: Mapping[str, Any]) -> str:
    """Format the fields as the file."""
    return json.dumps({name: fields[name] for name in FIELDS}, indent=4, ensure_ascii=False) + "\n"


def problems(text: str, is_demo: bool = False) -> list[str]:
    """List what is wrong with a file of this text: missing fields, wrong types, placeholders.

    is_demo: STAND_INS are accepted.
    """
    try:
        found = json.loads(text, parse_int=_integer, object_pairs_hook=_fields)
    except (ValueError, RecursionError) as error:
        return [f"is not JSON ({error})"]
    if not isinstance(found, dict):
        return ["is not a JSON object"]
    lines = [f"field {name} is missing" for name in FIELDS if name not in found]
    for name, field in FIELDS.items():
        if name in found and not (is_demo and found[name] in STAND_INS):
            lines += _problems_of(name, field.kind, found[name])
    return lines


def extra_fields(text: str) -> list[str]:
    """Return the names of the fields that the rules do not know, of a file that is a JSON object."""
    return sorted(set(json.loads(text)) - set(FIELDS))


def _problems_of(name: str, kind: type, value: Any) -> list[str]:
    if kind is int:
        least = 0 if name == "accelerators_per_node" else 1
        if not isinstance(value, int) or isinstance(value, bool):
            return [f"field {name} must be an integer, not {_shown(value)}"]
        return [f"field {name} is {value}, below {least}"] if value < least else []
    if not isinstance(value, str):
        return [f"field {name} must be a string, not {_shown(value)}"]
    if name.endswith("_capacity") and not CAPACITY.fullmatch(value.strip()):
        return [f"field {name} is {_shown(value)}, not a size such as `16 GB`"]
    if (
        name.startswith("host_")
        and name.endswith("_capacity")
        and not re.search("[1-9]", re.split("[xX*×]", value)[-1])
    ):
        return [f"field {name} is {_shown(value)}"]
    is_cpu = (name, value) == ("accelerator_name", "none")
    if PLACEHOLDER.fullmatch(value) and not is_cpu:
        return [f"field {name} is {_shown(value)}, which says nothing"]
    return []


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:80]


def _fields(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ValueError if a field is given twice."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"{_shown(next(name for name in names if names.count(name) > 1))} is given twice")
    return dict(pairs)


def _integer(text: str) -> int:
    if len(text) > 18:
        raise ValueError(f"{text[:20]}... is no number that can be meant")
    return int(text)


def _memory(count: int | None) -> str | None:
    return None if count is None else f"{round(count / 2**30)} GB"


def _storage(count: int | None) -> str | None:
    if count is None:
        return None
    return f"{count / 1e12:.3g} TB" if count >= 1e12 else f"{round(count / 1e9)} GB"


def _software(begin: Event, host: Mapping[str, Any]) -> str:
    """Return the libraries and the framework: the file has no field of its own for the framework."""
    versions = host.get("libraries") or {}
    parts = [f"{name} {versions[key]}" for key, name in LIBRARIES.items() if versions.get(key)]
    framework = FRAMEWORKS.get(begin["framework"], begin["framework"])
    return ", ".join([*parts, f"{framework} {begin['framework_version']}", f"Python {host['python']}"])
