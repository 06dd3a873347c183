"""Requirements of AI-Rank's software track, training (docs/software/train.md, commit ef9b4ca), and its targets."""

import re
from decimal import Decimal
from typing import NamedTuple

FOLDERS = ("code", "data", "log")  # of a model
CARDS = (1, 8, 32)
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


class Listed(NamedTuple):
    """A model that AI-Rank lists.

    Attributes:
        title: its name in the rules.
        folder: beginning of the name of its folder.
        target: accuracy to reach, as a fraction.
        dataset: its data.
        train_samples, val_samples: smallest and largest number of samples of the copies in use.
        protocol: first part of the protocol of an evaluation on this data.
        views: pattern of its second part: one view of each sample at the task's usual size.
        metric: the accuracy that is compared with the target.
        eval_every: the evaluation interval that is demanded; None where the rules leave it open.
    """

    title: str
    folder: str
    target: Decimal
    dataset: str
    train_samples: tuple[int, int]
    val_samples: tuple[int, int]
    protocol: str
    views: str
    metric: str
    eval_every: str | None


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
    """Return the name of the log of a scale."""
    return f"GPUx{cards}.log"


def nodes(cards: int) -> int:
    """Return the number of machines that a scale uses: 32 cards are 4 x 8."""
    return -(-cards // MAX_CARDS_PER_NODE)
