"""system_information.json: its fields from the record of a run, and errors in them."""

import json
import re
from collections.abc import Mapping
from typing import Any

from zoo.bench.submission.rules import FIELDS
from zoo.logs.journal import Event

CAPACITY = re.compile(r"(\d+\s*[x*×]\s*)?\d+(\.\d+)?\s*[KMGTP](i?B)?", re.IGNORECASE)
NOT_RECORDED, NO_SIZE = "not recorded", "0 GB"  # values that a demo has for what is not known
LIBRARIES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "cann": "CANN"}
FRAMEWORKS = {"torch": "PyTorch", "paddle": "PaddlePaddle", "mindspore": "MindSpore"}


def describe(begin: Event, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the 15 fields, None where neither the run nor the command line has a value.

    A run on CPUs has no accelerators: their number is 0, their name `none` and their memory `0 GB`.

    Args:
        begin: the event `begin` of a run; the hosts are alike, so the first one is described.
        given: fields of the command line, which take precedence.
    """
    hosts = begin["hosts"]
    host = hosts[0]
    used = host.get("accelerators") or []
    versions = host.get("libraries") or {}
    software = [f"{name} {versions[key]}" for key, name in LIBRARIES.items() if versions.get(key)]
    software.append(f"{FRAMEWORKS.get(begin['framework'], begin['framework'])} {begin['framework_version']}")
    fields = {
        "accelerator_memory_capacity": _gigabytes(used[0].get("memory_bytes")) if used else NO_SIZE,
        "accelerator_name": used[0]["name"] if used else "none",
        "accelerators_per_node": max(len(used), host.get("accelerators_present") or 0) if used else 0,
        "host_memory_capacity": _gigabytes(host.get("memory_bytes")),
        "host_processor_core_count": host.get("cores"),
        "host_processor_name": host.get("cpu"),
        "host_processors_per_node": host.get("sockets"),
        "host_storage_capacity": _storage(host.get("storage_bytes")),
        "host_storage_type": host.get("storage_type"),
        "number_of_nodes": len(hosts),
        "operating_system": host.get("os"),
        "software_stack": ", ".join([*software, f"Python {host['python']}"]),  # no field is for the framework
        "submitter": None,
        "hardware_name": host.get("hardware"),
        "hardware_type": None,
    }
    return {**fields, **{name: value for name, value in given.items() if value is not None}}


def render(fields: Mapping[str, Any]) -> str:
    """Format the fields as the file."""
    return json.dumps({name: fields[name] for name in FIELDS}, indent=4, ensure_ascii=False) + "\n"


def problems(fields: Mapping[str, Any], is_demo: bool = False) -> list[str]:
    """List the fields that are missing, or have another type or a value that cannot be meant.

    Args:
        fields: content of the file.
        is_demo: accept the values of a demo for what is not known.
    """
    lines = [f"field {name} is missing" for name in FIELDS if name not in fields]
    for name in FIELDS:
        if name in fields and not (is_demo and fields[name] in (NO_SIZE, NOT_RECORDED)):
            lines += _problems_of(name, fields[name])
    return lines


def _problems_of(name: str, value: Any) -> list[str]:
    shown = json.dumps(value, ensure_ascii=False)[:80]
    if type(value) is not type(FIELDS[name]):
        return [f"field {name} must be {'an integer' if isinstance(FIELDS[name], int) else 'a string'}, not {shown}"]
    if isinstance(value, int):
        least = 0 if name == "accelerators_per_node" else 1
        return [f"field {name} is {shown}, below {least}"] if value < least else []
    if name.endswith("_capacity"):
        is_size = CAPACITY.fullmatch(value.strip()) and (name.startswith("acc") or re.search("[1-9]", value))
        return [] if is_size else [f"field {name} is {shown}, not a size such as `16 GB`"]
    return [] if value.strip() and value != NOT_RECORDED else [f"field {name} is {shown}, which says nothing"]


def _gigabytes(count: int | None) -> str | None:
    return None if count is None else f"{round(count / 2**30)} GB"


def _storage(count: int | None) -> str | None:
    if count is None:
        return None
    return f"{count / 1e12:.3g} TB" if count >= 1e12 else f"{round(count / 1e9)} GB"
