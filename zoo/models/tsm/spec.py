"""Specification of the Temporal Shift Module (arXiv:1811.08383) on a 2-D ResNet.

Canonical names are those of the ResNet; a non-local block adds layer{2,3}.{block}.nl.{theta,phi,g,out,bn}.
Where implementations differ, mit-han-lab/temporal-shift-module is followed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from zoo.data.batch import DropoutMask, Field
from zoo.data.fields import Checked, Count, Doc, Range, SettingError, Share
from zoo.models import flops as counting
from zoo.models.initializers import Initializer, normal, uniform
from zoo.models.resnet import spec as resnet

VARIANTS = {f"tsm_r{depth}": {"depth": depth} for depth in resnet.BLOCKS}
NUM_CLASSES = 400
INPUT_SHAPE = (8, 224, 224, 3)
NON_LOCAL_BLOCKS = {2: (0, 2), 3: (0, 2, 4)}  # layer -> blocks that end in a non-local block
# Per direction, for each fold of channels that moves: the frame that it comes from, 1 the next and -1 the previous one.
SHIFT_OFFSETS = {"future": (1, -1), "past": (-1, 1), "causal": (-1,)}


@dataclass(frozen=True)
class Arch(Checked):
    depth: Annotated[Literal[18, 34, 50, 101, 152], Doc("Layers of the backbone, a ResNet.")] = 50
    num_classes: Annotated[Count | None, Doc("Outputs of the classifier; null: the classes of the data.")] = None
    segments: Annotated[Count | None, Doc("Frames per clip, T; null: that of the data.")] = None
    shift_place: Annotated[
        Literal["blockres", "block", "none"],
        Doc("Where channels are shifted: in front of the residual branch, or of the block."),
    ] = "blockres"
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
    temporal_pool: Annotated[bool, Doc("Halve T in front of layer2.")] = False
    non_local: Annotated[bool, Doc("Add non-local blocks to layer2 and layer3.")] = False
    dropout: Annotated[Share, Doc("Dropout in front of the classifier.")] = 0.5
    partial_bn: Annotated[bool, Doc("Freeze every 2-D batch normalization but the first.")] = False
    fc_lr5: Annotated[
        bool, Doc("Multiply the learning rate of the classifier by 5 for its weight and by 10 for its bias.")
    ] = True
    width: Annotated[Count, Doc("Channels of the stem, 64 in the paper.")] = 64
    pretrained: Annotated[Literal["imagenet"] | None, Doc("Initial weights of the backbone; null: random.")] = None

    def __post_init__(self):
        super().__post_init__()
        if self.non_local and self.depth < 34:
            raise SettingError(
                "non_local", "the last non-local block follows layer3.4, which needs a depth of 34 or more"
            )
        if self.temporal_pool and self.segments is not None and self.segments % 2:
            raise SettingError("temporal_pool", f"needs an even number of segments, not {self.segments}")
        for key in ("temporal_pool", "non_local"):
            if self.shift_direction == "causal" and getattr(self, key):
                raise SettingError(key, "looks at later frames, which shift_direction=causal excludes; choose one")

    @property
    def backbone(self) -> resnet.Arch:
        return resnet.Arch(self.depth, self.num_classes, self.width)

    @property
    def features(self) -> int:
        """Input channels of the classifier."""
        return self.backbone.features


def shifts(arch: Arch) -> tuple[tuple[bool, ...], ...]:
    """Return, for each block of layer1..layer4, whether it shifts.

    All blocks do, except that `blockres` shifts in every second block where layer3 has 23 blocks or more.
    """
    blocks = resnet.BLOCKS[arch.depth]
    every = 2 if arch.shift_place == "blockres" and blocks[2] >= 23 else 1
    return tuple(tuple(arch.shift_place != "none" and i % every == 0 for i in range(count)) for count in blocks)


def state_shapes(arch: Arch, height: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """Return the shapes of a stream's state: (channels, height, width) for every block that shifts, in order.

    A tensor holds the channels that the block takes from the previous frame, as that frame entered the block. Blocks
    of fewer than shift_div channels take none. Raises ValueError unless the architecture is causal.
    """
    check_causal(arch)
    found, channels, halvings = [], arch.width, 2
    for stage, has_shifts in zip(resnet.stages(arch.backbone), shifts(arch)):
        for i, has_shift in enumerate(has_shifts):
            if has_shift and channels >= arch.shift_div:
                found.append((channels // arch.shift_div, -(-height >> halvings), -(-width >> halvings)))
            halvings += stage.stride == 2 and i == 0
            channels = stage.width * arch.backbone.expansion
    return tuple(found)


def check_causal(arch: Any) -> None:
    """Raise a ValueError unless the shift takes channels from the past alone."""
    if arch.shift_direction != "causal":
        raise ValueError(  # MindSpore compiles this, and knows no exceptions but Python's own
            f"shift_direction: frame by frame, a model must be causal, and this one is {arch.shift_direction}; train "
            "one with model.shift_direction=causal"
        )


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter and running statistic by canonical name."""
    shape_of = resnet.shapes(arch.backbone)
    for layer, blocks in NON_LOCAL_BLOCKS.items() if arch.non_local else ():
        channels = arch.width * 2 ** (layer - 1) * arch.backbone.expansion
        for block in blocks:
            name, half = f"layer{layer}.{block}.nl", channels // 2
            for conv in ("theta", "phi", "g"):
                shape_of.update({f"{name}.{conv}.weight": (half, channels, 1, 1, 1), f"{name}.{conv}.bias": (half,)})
            shape_of.update({f"{name}.out.weight": (channels, half, 1, 1, 1), f"{name}.out.bias": (channels,)})
            shape_of.update((f"{name}.bn.{tensor}", (channels,)) for tensor in resnet.BATCH_NORM_TENSORS)
    return shape_of


def resolve(arch: Arch, fields: Sequence[Field], num_classes: int) -> Arch:
    """Complete the architecture with the number of classes and of frames per clip."""
    if len(fields[0].shape) != 4:
        raise SettingError("name", f"the model takes clips, but a sample of the data has the shape {fields[0].shape}")
    segments = fields[0].shape[0]
    if arch.segments not in (None, segments):
        raise SettingError(
            "segments",
            f"the model takes {arch.segments} frames, but data.segments gives {segments}; make them equal, "
            "or leave this key out",
        )
    return replace(arch, num_classes=arch.num_classes or num_classes, segments=segments)


def flops(arch: Arch, shape: Sequence[int]) -> int:
    """Return the operations of a forward pass: video (T, H, W, 3).

    Those of ResNet for every frame, and of the non-local blocks with their two products of all positions with those of
    half the height and width.
    """
    segments, height, width, _ = shape
    shape_of = shapes(arch)

    def positions(name: str) -> int:
        is_pooled = arch.temporal_pool and not name.startswith(("conv1.", "layer1."))
        frames = segments // 2 if is_pooled else segments
        return frames * resnet.output_pixels(arch.backbone, name, height, width)

    attention = 0
    for name in (name for name in shape_of if name.endswith("nl.theta.weight")):
        halvings = 1 + int(name[len("layer")])  # 3 in layer2, 4 in layer3
        frames = segments // 2 if arch.temporal_pool else segments
        pooled = frames * (-(-height >> halvings) // 2) * (-(-width >> halvings) // 2)
        attention += 2 * 2 * positions(name) * pooled * shape_of[name][0]
    return counting.of_weights(shape_of, positions) + attention


def checkpointed_modules(arch: Arch) -> tuple[str, ...]:
    """Return the names of the ResNet's blocks. Non-local blocks are not among them."""
    return resnet.checkpointed_modules(arch.backbone)


def dropout_masks(arch: Arch) -> tuple[DropoutMask, ...]:
    """Return the dropout mask in front of the classifier: (frames after the temporal pool, features)."""
    if arch.dropout == 0:
        return ()
    if arch.segments is None:
        raise SettingError("segments", "not known yet; set it, or resolve the architecture with a data set")
    frames = arch.segments // 2 if arch.temporal_pool else arch.segments
    return (DropoutMask("dropout", (frames, arch.features), arch.dropout),)


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """Return ResNet's initialization, but N(0, 0.001) for the classifier's weight and PyTorch's default for non-local
    convolutions: uniform within 1/sqrt(fan-in).

    The normalization at the end of a non-local block has weight and bias 0, so the block starts as the identity.
    """
    if name == "fc.weight":
        return normal(0.001)
    if ".nl." in name:
        if ".bn." in name:
            return Initializer("ones") if name.endswith("running_var") else Initializer("zeros")
        # A bias has the fan-in of its convolution: theta, phi and g halve the channels, out doubles them.
        fan_in = shape[1] if len(shape) > 1 else 2 * shape[0]
        if name.endswith("out.bias"):
            fan_in = shape[0] // 2
        return uniform(fan_in**-0.5)
    return resnet.initializer(arch.backbone, name, shape)


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """Return (learning-rate factor, weight-decay factor) of a parameter: upstream's parameter groups.

    Biases have twice the learning rate and no weight decay, normalizations no weight decay.
    """
    if resnet.is_norm(name):
        first_or_3d = name.startswith("bn1.") or ".nl." in name
        return (0.0 if arch.partial_bn and not first_or_3d else 1.0), 0.0
    if name.startswith("fc.") and arch.fc_lr5:
        return (5.0, 1.0) if name.endswith("weight") else (10.0, 0.0)
    return (2.0, 0.0) if name.endswith(".bias") else (1.0, 1.0)


def not_pretrained(name: str) -> bool:
    """Return whether weights pretrained on ImageNet are not used for a tensor."""
    return name.startswith("fc.") or ".nl." in name
