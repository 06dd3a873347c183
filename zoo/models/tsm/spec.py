"""Temporal Shift Module on a 2-D ResNet (arXiv:1811.08383): what is the same in every framework.

Canonical names are those of the ResNet; a non-local block adds layer{2,3}.{block}.nl.{theta,phi,g,out,bn}.
Where upstreams differ, mit-han-lab/temporal-shift-module is followed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from data.batch import DropoutMask, Field
from zoo.models.initializers import Initializer, normal, uniform
from zoo.models.resnet import spec as resnet

TASK = "classify"
SHARDED_PARAMETERS: tuple[str, ...] = ()  # split over ranks by rows
FP32_MODULES: tuple[str, ...] = ()  # compute in fp32 whatever the mode
PARAMETERS = {50: 24_327_632}  # 400 classes
PARAMETERS_NON_LOCAL = {50: 31_686_096}
NON_LOCAL_BLOCKS = {2: (0, 2), 3: (0, 2, 4)}  # layer -> blocks that end in a non-local block


@dataclass(frozen=True)
class Arch:
    depth: Literal[18, 34, 50, 101, 152] = 50
    num_classes: int | None = None  # None: as many as the data has
    segments: int | None = None  # T, frames per clip; None: as many as the data has
    shift_place: Literal["blockres", "block", "none"] = "blockres"
    shift_div: int = 8  # 1 / shift_div of the channels moves each way
    shift_direction: Literal["future", "past"] = "future"  # where the first fold looks; PaddleVideo's nets: past
    temporal_pool: bool = False  # halve T in front of layer2
    non_local: bool = False
    dropout: float = 0.5
    partial_bn: bool = False  # freeze every 2-D batch normalisation but the first
    fc_lr5: bool = True  # the classifier learns 5 (bias: 10) times faster
    width: int = 64  # channels of the stem; the paper's nets have 64
    pretrained: Literal["imagenet"] | None = None

    def __post_init__(self):
        resnet.Arch(self.depth, self.num_classes, self.width)
        if self.shift_div < 2:
            raise ValueError("shift_div: must be at least 2, since both directions move 1/shift_div of the channels")
        if not 0 <= self.dropout < 1:
            raise ValueError("dropout: must lie in [0, 1)")
        if self.non_local and self.depth < 34:
            raise ValueError("non_local: sits in layer3 block 4, which needs a depth of 34 or more")
        if self.segments is not None and self.segments < 1:
            raise ValueError("segments: must be at least 1")
        if self.temporal_pool and self.segments is not None and self.segments % 2:
            raise ValueError(f"temporal_pool: needs an even number of segments, not {self.segments}")

    @property
    def backbone(self) -> resnet.Arch:
        return resnet.Arch(self.depth, self.num_classes, self.width)

    @property
    def features(self) -> int:
        return self.backbone.features


def shifts(arch: Arch) -> tuple[tuple[bool, ...], ...]:
    """Whether a block of layer1..layer4 shifts: all of them, but every second one where layer3 has 23 blocks or more.

    The rule of the second block holds for `blockres` alone.
    """
    blocks = resnet.BLOCKS[arch.depth]
    every = 2 if arch.shift_place == "blockres" and blocks[2] >= 23 else 1
    return tuple(tuple(arch.shift_place != "none" and i % every == 0 for i in range(count)) for count in blocks)


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Every parameter and running statistic, by canonical name; num_classes must be known."""
    found = resnet.shapes(arch.backbone)
    for layer, blocks in NON_LOCAL_BLOCKS.items() if arch.non_local else ():
        channels = arch.width * 2 ** (layer - 1) * arch.backbone.expansion
        for block in blocks:
            name, half = f"layer{layer}.{block}.nl", channels // 2
            for part in ("theta", "phi", "g"):
                found.update({f"{name}.{part}.weight": (half, channels, 1, 1, 1), f"{name}.{part}.bias": (half,)})
            found.update({f"{name}.out.weight": (channels, half, 1, 1, 1), f"{name}.out.bias": (channels,)})
            found.update(
                (f"{name}.bn.{part}", (channels,)) for part in ("weight", "bias", "running_mean", "running_var")
            )
    return found


def resolve(arch: Arch, fields: Sequence[Field], classes: int) -> Arch:
    """The architecture completed by what the data says. Raises ValueError naming the key."""
    segments = fields[0].shape[0]
    if arch.segments not in (None, segments):
        raise ValueError(f"segments: the net wants {arch.segments} frames, data.segments gives {segments}")
    return replace(arch, num_classes=arch.num_classes or classes, segments=segments)


def min_batch_size(arch: Arch) -> int:
    """Samples that the batch statistics of a step need."""
    return 1


def dropout_masks(arch: Arch) -> tuple[DropoutMask, ...]:
    """The dropout mask of the head: one per frame, after the temporal pool."""
    if arch.dropout == 0:
        return ()
    frames = arch.segments // 2 if arch.temporal_pool else arch.segments
    return (DropoutMask("dropout", (frames, arch.features), arch.dropout),)


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """As ResNet, but a classifier of N(0, 0.001) and a non-local block that begins as the identity."""
    if name == "fc.weight":
        return normal(0.001)
    if ".nl." in name:
        if ".bn." in name:  # weight and bias 0: the block adds nothing at first
            return Initializer("ones") if name.endswith("running_var") else Initializer("zeros")
        fan_in = shape[1] if len(shape) > 1 else 2 * shape[0]
        if name.endswith("out.bias"):
            fan_in = shape[0] // 2
        return uniform(fan_in**-0.5)
    return resnet.initializer(arch.backbone, name, shape)


def is_head(name: str) -> bool:
    """Whether a name hangs on the classes."""
    return resnet.is_head(name)


def not_pretrained(name: str) -> bool:
    """Whether a net that starts from ImageNet weights draws this tensor by itself."""
    return is_head(name) or ".nl." in name


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """(learning-rate factor, weight-decay factor) of a parameter; a factor of 0 freezes it."""
    if resnet.is_norm(name):
        first_or_3d = name.startswith("bn1.") or ".nl." in name
        return (0.0 if arch.partial_bn and not first_or_3d else 1.0), 0.0
    if name.startswith("fc.") and arch.fc_lr5:
        return (5.0, 1.0) if name.endswith("weight") else (10.0, 0.0)
    return (2.0, 0.0) if name.endswith(".bias") else (1.0, 1.0)
