"""Specification of the Temporal Shift Module (arXiv:1811.08383) on MobileNetV2 (arXiv:1801.04381).

Canonical names: conv1, bn1, blocks.{0..16}.{expand,bn1,depthwise,bn2,project,bn3}, conv2, bn2, fc; block 0 has neither
expand nor bn1. As in mit-han-lab/temporal-shift-module, the inverted residual blocks with a shortcut shift: all but the
first of each stage. The shortcut gets the unshifted frames.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from zoo.data.batch import DropoutMask
from zoo.data.fields import Count, Doc, Range, SettingError, Share
from zoo.models import flops as counting
from zoo.models.defaults import Architecture
from zoo.models.initializers import Initializer, kaiming_normal, normal, zeros
from zoo.models.resnet.spec import BATCH_NORM_TENSORS
from zoo.models.tsm import spec as tsm

NUM_CLASSES = tsm.NUM_CLASSES
INPUT_SHAPE = tsm.INPUT_SHAPE
STAGES = (  # expansion, channels at width 32, blocks, stride of the first one
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
FEATURES = 1280  # channels of the last convolution, at width 32 and below
resolve = tsm.resolve


@dataclass(frozen=True)
class Arch(Architecture):
    """Architecture of a TSM on MobileNetV2."""

    num_classes: Annotated[Count | None, Doc("Outputs of the classifier; null: the classes of the data.")] = None
    segments: Annotated[Count | None, Doc("Frames per clip, T; null: that of the data.")] = None
    shift_div: Annotated[
        int, Range(low=2), Doc("Divisor of the share of channels that moves each way: 1 / shift_div.")
    ] = 8
    shift_direction: Annotated[
        Literal["future", "past", "causal"],
        Doc(
            "Frames that the first fold of channels comes from; the second comes from the other side or, if "
            "causal, stays."
        ),
    ] = "future"
    dropout: Annotated[Share, Doc("Dropout in front of the classifier.")] = 0.5
    fc_lr5: Annotated[
        bool, Doc("Multiply the learning rate of the classifier by 5 for its weight and by 10 for its bias.")
    ] = True
    width: Annotated[
        Count, Doc("Channels of the stem, 32 in the paper; the others follow in proportion, as multiples of 8.")
    ] = 32
    pretrained: Annotated[Literal["imagenet"] | None, Doc("Initial weights of the backbone; null: random.")] = None

    @property
    def imagenet_variant(self) -> str:
        """Key of the published weights in zoo/weights/registry.yaml."""
        return "mobilenet_v2"

    @property
    def features(self) -> int:
        """Input channels of the classifier."""
        return scaled(FEATURES, max(32, self.width))


class Block(NamedTuple):
    inputs: int
    hidden: int  # channels of the depthwise convolution; as many as the inputs if nothing expands them
    outputs: int
    stride: int

    @property
    def expands(self) -> bool:
        """Whether a 1x1 convolution precedes the depthwise one."""
        return self.hidden != self.inputs

    @property
    def has_shortcut(self) -> bool:
        """Whether the input is added to the output; these blocks shift."""
        return self.stride == 1 and self.inputs == self.outputs


def scaled(channels: int, width: int) -> int:
    """Return channels for another width of the stem: the nearest multiple of 8 that is not 10 % less, at least 8."""
    exact = channels * width / 32
    rounded = max(8, int(exact + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * exact else rounded


def blocks(arch: Arch) -> tuple[Block, ...]:
    found: list[Block] = []
    inputs = scaled(32, arch.width)
    for expansion, channels, count, stride in STAGES:
        for i in range(count):
            outputs = scaled(channels, arch.width)
            found.append(Block(inputs, inputs * expansion, outputs, stride if i == 0 else 1))
            inputs = outputs
    return tuple(found)


def state_shapes(arch: Arch, height: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """Return the shapes of a stream's state; see zoo/models/tsm/spec.py. Raises ValueError."""
    tsm.check_causal(arch)
    found, halvings = [], 1
    for block in blocks(arch):
        if block.has_shortcut and block.inputs >= arch.shift_div:
            found.append((block.inputs // arch.shift_div, -(-height >> halvings), -(-width >> halvings)))
        halvings += block.stride == 2
    return tuple(found)


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter and running statistic by canonical name."""
    shape_of: dict[str, tuple[int, ...]] = {}

    def add_conv_bn(conv: str, norm: str, *shape: int) -> None:
        shape_of[f"{conv}.weight"] = shape
        shape_of.update((f"{norm}.{tensor}", shape[:1]) for tensor in BATCH_NORM_TENSORS)

    add_conv_bn("conv1", "bn1", scaled(32, arch.width), 3, 3, 3)
    for i, block in enumerate(blocks(arch)):
        name = f"blocks.{i}"
        if block.expands:
            add_conv_bn(f"{name}.expand", f"{name}.bn1", block.hidden, block.inputs, 1, 1)
        add_conv_bn(f"{name}.depthwise", f"{name}.bn2", block.hidden, 1, 3, 3)
        add_conv_bn(f"{name}.project", f"{name}.bn3", block.outputs, block.hidden, 1, 1)
    add_conv_bn("conv2", "bn2", arch.features, blocks(arch)[-1].outputs, 1, 1)
    return {**shape_of, "fc.weight": (arch.outputs, arch.features), "fc.bias": (arch.outputs,)}


def flops(arch: Arch, shape: Sequence[int]) -> int:
    """Return the operations of a forward pass: video (T, H, W, 3)."""
    segments, height, width, _ = shape
    strides = [block.stride for block in blocks(arch)]

    def positions(name: str) -> int:
        if name.startswith("fc."):
            return segments
        before = len(strides)  # blocks in front of the output of this convolution
        if name.startswith("conv1."):
            before = 0
        elif name.startswith("blocks."):
            before = int(name.split(".")[1]) + (".expand." not in name)
        return segments * counting.pixels(height, width, 1 + strides[:before].count(2))

    return counting.of_weights(shapes(arch), positions)


def checkpointed_modules(arch: Arch) -> tuple[str, ...]:
    return tuple(f"blocks.{i}" for i in range(len(blocks(arch))))


def dropout_masks(arch: Arch) -> tuple[DropoutMask, ...]:
    """Return the dropout mask in front of the classifier: (frames, features)."""
    if arch.dropout == 0:
        return ()
    if arch.segments is None:
        raise SettingError("segments", "not known yet; set it, or resolve the architecture with a data set")
    return (DropoutMask("dropout", (arch.segments, arch.features), arch.dropout),)


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """Return the initialization: He normal by the fan-out for convolutions, N(0, 0.001) for the classifier's weight."""
    if name == "fc.weight":
        return normal(0.001)
    if name.endswith(".running_var") or (is_norm(name) and name.endswith(".weight")):
        return Initializer("ones")
    return kaiming_normal(shape) if len(shape) == 4 else zeros(name)


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """Return (learning-rate factor, weight-decay factor) of a parameter: upstream's groups, as in zoo/models/tsm."""
    if is_norm(name):
        return 1.0, 0.0
    if name.startswith("fc.") and arch.fc_lr5:
        return (5.0, 1.0) if name.endswith("weight") else (10.0, 0.0)
    return (2.0, 0.0) if name.endswith(".bias") else (1.0, 1.0)


def is_norm(name: str) -> bool:
    """Return whether a tensor belongs to a batch normalization."""
    return name.split(".")[-2:][0].startswith("bn")
