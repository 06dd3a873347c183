"""Requirements of AI-Rank's software track, training (docs/software/train.md, commit ef9b4ca): targets, the system."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from zoo.logs.journal import Event

FOLDERS = ("code", "data", "log")  # of a model
CARDS = (1, 8, 32)
OTHER_CARDS = "AI-Rank compares runs with 1, 8 and 32 cards"
MAX_CARDS_PER_NODE = 8
SYSTEM_FILE, README = "system_information.json", "README.md"
CHECKSUM = re.compile(r"\b[0-9a-fA-F]{32,128}\b")
DEPTH = 50  # of the ResNet in every model that is listed
FIELDS: dict[str, str | int] = {  # of system_information.json, with the example of the rules
    "accelerator_memory_capacity": "32 GB",
    "accelerator_name": "NVIDIA V100-SXM2-32GB",
    "accelerators_per_node": 8,
    "host_memory_capacity": "512 GB",
    "host_processor_core_count": 40,
    "host_processor_name": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
    "host_processors_per_node": 2,
    "host_storage_capacity": "1 TB",
    "host_storage_type": "SSD",
    "number_of_nodes": 1,
    "operating_system": "Ubuntu 18.04.4",
    "software_stack": "CUDA 11.0 Update 1, cuDNN 8.0.2",
    "submitter": "Baidu",
    "hardware_name": "Dell PowerEdge C4140",
    "hardware_type": "datacenter",
}
CAPACITY = re.compile(r"(\d+\s*[x*×]\s*)?\d+(\.\d+)?\s*[KMGTP](i?B)?", re.IGNORECASE)
NOT_RECORDED, NO_SIZE = "not recorded", "0 GB"  # values that a demo has for what is not known
LIBRARIES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL", "cann": "CANN"}
FRAMEWORKS = {"torch": "PyTorch", "paddle": "PaddlePaddle", "mindspore": "MindSpore", "jax": "JAX"}


class Listed(NamedTuple):
    """A model that AI-Rank lists."""

    title: str  # its name in the rules
    folder: str  # beginning of the name of its folder
    target: Decimal  # accuracy to reach, as a fraction
    dataset: str  # its data
    # train_samples, val_samples: smallest and largest number of samples of the copies in use
    train_samples: tuple[int, int]
    val_samples: tuple[int, int]
    protocol: str  # first part of the protocol of an evaluation on this data
    views: str  # pattern of its second part: one view of each sample at the task's usual size
    metric: str  # the accuracy that is compared with the target
    eval_every: str | None  # the evaluation interval that is demanded; None where the rules leave it open


LISTED = {  # name of a model of this project -> its listing; a model that is not here cannot be submitted
    "tsm": Listed(
        "TSM",
        "tsm",
        Decimal("0.711"),
        "Kinetics-400",
        (230_000, 250_000),  # 234,584 and 234,619 in submitted logs; videos get lost
        (19_000, 20_500),
        "k400",
        r"8x1x1@224(-\w+)?",  # the sampling of the frames is free
        "top1",
        "1 epoch",
    ),
    "resnet": Listed(
        "ResNet50",
        "resnet50",
        Decimal("0.759"),
        "ImageNet",
        (1_281_167, 1_281_167),
        (50_000, 50_000),
        "imagenet",
        r"224-of-256",
        "top1",
        "1 epoch",
    ),
    "deeplabv3plus": Listed(
        "DeepLabV3+",
        "deeplabv3plus",
        Decimal("0.785"),
        "Cityscapes",
        (2975, 2975),
        (500, 500),
        "cityscapes",
        r"(whole|slide[\dx/]+)@(full|1024x2048|1025x2049)",  # neither several scales nor mirrored
        "miou",
        None,
    ),
}


def find(folder: str) -> Listed | None:
    """Return the listed model that a model's folder is named after, None if there is none."""
    return next((listed for listed in LISTED.values() if folder.lower().startswith(listed.folder)), None)


def log_name(cards: int) -> str:
    return f"GPUx{cards}.log"


def cards_of(name: str) -> int:
    """Return the number of cards of a log by its name; 0 of another file."""
    match = re.fullmatch(r"GPUx([1-9]\d{0,4})\.log", name)
    return int(match[1]) if match else 0


def nodes(cards: int) -> int:
    """Return the number of machines that a scale uses: 32 cards are 4 x 8."""
    return -(-cards // MAX_CARDS_PER_NODE)


def describe(begin: Event, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the 15 fields, None where neither the run's event `begin` nor the command line has a value.

    A run on CPUs has no accelerators: their number is 0, their name `none` and their memory `0 GB`.
    """
    hosts = begin["hosts"]
    host = hosts[0]  # the others are alike
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
    return json.dumps({name: fields[name] for name in FIELDS}, indent=4, ensure_ascii=False) + "\n"


def problems(fields: Mapping[str, Any], is_demo: bool = False) -> list[str]:
    """List the fields that are missing, or have another type or a value that cannot be meant.

    A demo may have NO_SIZE and NOT_RECORDED for what is not known.
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
    return None if count is None else f"{count / 1e12:.3g} TB" if count >= 1e12 else f"{round(count / 1e9)} GB"
