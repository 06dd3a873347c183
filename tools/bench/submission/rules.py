"""What AI-Rank demands of a submission to its software track, training (docs/software/train.md, commit ef9b4ca)."""

import re
from decimal import Decimal
from typing import NamedTuple

SYSTEMS = ("linux", "windows")
FOLDERS = ("code", "data", "log")  # of a model
CARDS = (1, 8, 32)
MAX_CARDS_PER_NODE = 8
SYSTEM_FILE, README = "system_information.json", "README.md"
CHECKSUM = re.compile(r"\b[0-9a-fA-F]{32,128}\b")


class Field(NamedTuple):
    """A field of system_information.json: its type, and the example of the rules."""

    kind: type
    example: str


FIELDS = {
    "accelerator_memory_capacity": Field(str, "32 GB"),
    "accelerator_name": Field(str, "NVIDIA V100-SXM2-32GB"),
    "accelerators_per_node": Field(int, "8"),
    "host_memory_capacity": Field(str, "512 GB"),
    "host_processor_core_count": Field(int, "40"),
    "host_processor_name": Field(str, "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"),
    "host_processors_per_node": Field(int, "2"),
    "host_storage_capacity": Field(str, "1 TB"),
    "host_storage_type": Field(str, "SSD"),
    "number_of_nodes": Field(int, "1"),
    "operating_system": Field(str, "Ubuntu 18.04.4"),
    "software_stack": Field(str, "CUDA 11.0 Update 1, cuDNN 8.0.2"),
    "submitter": Field(str, "Baidu"),
    "hardware_name": Field(str, "Dell PowerEdge C4140"),
    "hardware_type": Field(str, "datacenter"),
}


class Section(NamedTuple):
    """A section that code/README.md must have.

    Attributes:
        title: heading that this project writes.
        pattern: what a heading of anybody's contains, in English or Chinese.
    """

    title: str
    pattern: str


SECTIONS = (
    Section("Download", r"download|obtain|get(ting)? the data|下载"),
    Section("Preprocessing and postprocessing", r"pre-?processing|预处理|后处理"),
    Section("Splits and order", r"splits?\b|order|顺序|数据范围"),
    Section("Initialization", r"initiali[sz]|初始化"),
    Section("Structure and differences to the reference", r"structure|architecture|结构"),
    Section("Optimizer", r"optimi[sz]er|优化器"),
    Section("Loss", r"\bloss|损失"),
    Section("Evaluation method and frequency", r"evaluation|精度评估|评估方法"),
    Section("Environment", r"environment|install|set-?up|环境|安装"),
    Section("Preparation and checks", r"prepar|准备"),
    Section("Training commands", r"commands?\b|training steps|训练的?步骤|测试步骤|运行"),
)


class Listed(NamedTuple):
    """A model that AI-Rank lists.

    Attributes:
        title: its name in the rules.
        folder: pattern of what the name of its folder begins with.
        target: of the accuracy, as a fraction; None where it is no single fraction.
        dataset: its data.
        train_samples: smallest and largest number of training samples of the copies in use, None where unknown.
        val_samples: likewise.
        protocol: first part of the protocol ids of a run on this data.
        views: pattern of the second part: one view of each sample at the task's usual size.
        metric: the accuracy that is compared with the target.
        eval_every: the evaluation interval that is demanded; None where the rules leave it open.
    """

    title: str
    folder: str
    target: Decimal | None = None
    dataset: str = ""
    train_samples: tuple[int, int] | None = None
    val_samples: tuple[int, int] | None = None
    protocol: str = ""
    views: str = ""
    metric: str = ""
    eval_every: str | None = None


OURS = {  # name of a model of this project -> its listing; a model that is not here cannot be submitted
    "tsm": Listed(
        "TSM",
        r"tsm",
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
        r"resnet[-_ ]?50",
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
        r"deeplab[-_ ]?v?3(plus|p|\+)",
        Decimal("0.785"),
        "Cityscapes",
        (2975, 2975),
        (500, 500),
        "cityscapes",
        r"(whole|slide[\dx/]+)@(full|1024x2048|1025x2049)",  # neither several scales nor mirrored
        "miou",
    ),
}
LISTED = (
    *OURS.values(),
    Listed("Mask R-CNN + FPN", r"mask[-_ ]?r[-_ ]?cnn"),
    Listed("YOLOv3", r"yolo[-_ ]?v?3"),
    Listed("HRNet", r"hrnet", Decimal("0.78"), "Cityscapes", (2975, 2975), (500, 500)),
    Listed("BERT", r"bert", Decimal("0.712")),
    Listed("Transformer", r"transformer"),
    Listed("DeepFM", r"deepfm", Decimal("0.788")),
    Listed("Wide&Deep", r"wide[-_ ]?(and|&|n)?[-_ ]?deep", Decimal("0.795")),
    Listed("Word2Vec", r"word2vec", Decimal("0.6")),
)
DEPTH = 50  # of the ResNet in each of OURS


def find(folder: str) -> Listed | None:
    """Return the listed model that a model's folder is named after, None if there is none."""
    return next((listed for listed in LISTED if re.match(listed.folder, folder, re.IGNORECASE)), None)


def log_name(cards: int) -> str:
    """Return the name of the log of a scale."""
    return f"GPUx{cards}.log"


def nodes(cards: int) -> int:
    """Return the number of machines that a scale uses: 32 cards are 4 x 8."""
    return -(-cards // MAX_CARDS_PER_NODE)
