"""Specification of DeepLabV3+ (arXiv:1802.02611) on a dilated ResNet.

Two variants are in use under this name. `mmseg` is mmsegmentation's: a wide head with a 3x3 bottleneck, batch
normalization and ReLU between the two halves of a separable convolution, and an auxiliary head. `paddleseg` is
PaddleSeg's: half as wide, with a 1x1 bottleneck, on the backbone ResNet-vd, without an auxiliary head.

Canonical names: backbone.{conv1,bn1, ... layer1..4} as in the ResNet (a deep stem adds conv2, bn2, conv3, bn3);
head.{image_pool,aspp.0,bottleneck,low}.{conv,bn}; head.{aspp.1..3,fuse.0..1}.{depthwise,pointwise}.{conv,bn};
head.classifier; aux.project.{conv,bn}, aux.classifier.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

from zoo.data.batch import DropoutMask, Field
from zoo.data.fields import Count, Doc, Range, SettingError, Share
from zoo.models import flops as counting
from zoo.models.defaults import Architecture
from zoo.models.initializers import Initializer, kaiming_normal, normal, zeros
from zoo.models.resnet import spec as resnet

TASK = "segment"
VARIANTS = {f"deeplabv3plus_r{depth}": {"depth": depth} for depth in (18, 50, 101)}
NUM_CLASSES = 19
INPUT_SHAPE = (512, 1024, 3)


@dataclass(frozen=True)
class Arch(Architecture):
    """Architecture of a DeepLabV3+."""

    variant: Annotated[Literal["mmseg", "paddleseg"], Doc("Implementation that head and backbone follow.")] = "mmseg"
    depth: Annotated[Literal[18, 50, 101], Doc("Layers of the backbone, a ResNet.")] = 50
    num_classes: Annotated[Count | None, Doc("Outputs of the classifier; null: the classes of the data.")] = None
    width: Annotated[Count, Doc("Output channels of the stem, 64 in the papers.")] = 64
    stem: Annotated[
        Literal["deep", "plain"], Doc("First layers; deep: three 3x3 convolutions, plain: torchvision's 7x7.")
    ] = "deep"
    output_stride: Annotated[Literal[8, 16], Doc("Stride of the backbone's output.")] = 8
    multi_grid: Annotated[
        tuple[int, ...],
        Range(low=1, ordered=False),
        Doc("Dilation of each block of layer4; empty: that of the variant."),
    ] = ()
    rates: Annotated[tuple[int, int, int], Range(low=1, ordered=False), Doc("Dilations of the pyramid.")] = (12, 24, 36)
    head_width: Annotated[Count | None, Doc("Channels of the head; null: 512 (mmseg) or 256 (paddleseg).")] = None
    low_width: Annotated[Count, Doc("Channels that the head takes from layer1.")] = 48
    aux_width: Annotated[Count, Doc("Channels of the auxiliary head.")] = 256
    auxiliary: Annotated[
        bool | None, Doc("Add a second, smaller head on layer3 in training; null: that of the variant.")
    ] = None
    dropout: Annotated[
        Share, Doc("Dropout in front of the classifiers, of channels (mmseg) or elements (paddleseg).")
    ] = 0.1
    align_corners: Annotated[bool, Doc("Align corners in every resize; it suits inputs of 8k + 1 pixels.")] = False
    decay: Annotated[
        Literal["weights", "all"], Doc("Parameters with weight decay; weights: none on biases and normalizations.")
    ] = "all"
    zero_gamma: Annotated[bool, Doc("Initialize the last normalization of each block to 0, unless pretrained.")] = True
    crop: Annotated[
        tuple[int, int] | None, Doc("Height and width in training, in pixels; null: those of the data.")
    ] = None
    pretrained: Annotated[Literal["imagenet"] | None, Doc("Initial weights of the backbone; null: random.")] = None

    def __post_init__(self):
        super().__post_init__()
        if self.stem == "deep" and self.width % 2:
            raise SettingError("width", "must be even for a deep stem")
        if self.variant == "paddleseg" and self.stem != "deep":
            raise SettingError("stem", "must be deep for the paddleseg variant")
        blocks = resnet.BLOCKS[self.depth][3]
        if self.multi_grid and len(self.multi_grid) != blocks:
            raise SettingError("multi_grid", f"one dilation for each of the {blocks} blocks of layer4")

    @property
    def backbone(self) -> resnet.Arch:
        """The ResNet; its stem and dilations are those of `stem_convs` and `stages`."""
        return resnet.Arch(self.depth, self.num_classes, self.width)

    @property
    def head_channels(self) -> int:
        return self.head_width or (512 if self.variant == "mmseg" else 256)

    @property
    def has_auxiliary(self) -> bool:
        return self.variant == "mmseg" if self.auxiliary is None else self.auxiliary

    @property
    def avg_down(self) -> bool:
        """Whether shortcuts with stride 2 average 2x2 pixels and then convolve without a stride, as in ResNet-vd."""
        return self.variant == "paddleseg"

    @property
    def stem_convs(self) -> tuple[tuple[int, int, int, int], ...]:
        """(inputs, outputs, kernel, stride) of the convolutions in front of the max pooling."""
        if self.stem == "plain":
            return ((3, self.width, 7, 2),)
        half = self.width // 2
        return (3, half, 3, 2), (half, half, 3, 1), (half, self.width, 3, 1)


class Stage(NamedTuple):
    """One of layer1..layer4."""

    width: int  # channels of its 3x3 convolutions
    stride: int  # of its first block
    dilations: tuple[int, ...]  # of its blocks


def stages(arch: Arch) -> tuple[Stage, ...]:
    """Return layer1..layer4.

    In mmseg the first block of a dilated layer has half its dilation. In PaddleSeg it does not, and the dilations of
    layer4 are multiplied by 1, 2, 4.
    """
    layer_dilations = {8: (1, 1, 2, 4), 16: (1, 1, 1, 2)}[arch.output_stride]
    layers: list[Stage] = []
    for number, (blocks, dilation) in enumerate(zip(resnet.BLOCKS[arch.depth], layer_dilations)):
        stride = 2 if number > 0 and dilation == 1 else 1
        dilations = (dilation,) * blocks
        if arch.variant == "mmseg":
            dilations = (max(dilation // 2, 1),) + dilations[1:]
        elif number == 3:
            dilations = tuple(dilation << i for i in range(blocks))
        if number == 3 and arch.multi_grid:
            dilations = arch.multi_grid
        layers.append(Stage(arch.width << number, stride, dilations))
    return tuple(layers)


def feature_size(arch: Arch, size: int) -> int:
    """Return the size of the output of layer4 along an axis of `size` pixels: every halving rounds up."""
    for _ in range({8: 3, 16: 4}[arch.output_stride]):
        size = -(-size // 2)
    return size


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter and running statistic by canonical name."""
    shape_of: dict[str, tuple[int, ...]] = {}
    head_bias = arch.variant == "paddleseg"  # its head has biases in front of normalizations

    def add_norm(name: str, channels: int) -> None:
        shape_of.update((f"{name}.{tensor}", (channels,)) for tensor in resnet.BATCH_NORM_TENSORS)

    def add_conv(name: str, inputs: int, outputs: int, kernel: int, bias: bool = head_bias) -> None:
        shape_of[f"{name}.conv.weight"] = (outputs, inputs, kernel, kernel)
        if bias:
            shape_of[f"{name}.conv.bias"] = (outputs,)
        add_norm(f"{name}.bn", outputs)

    def add_separable_conv(name: str, inputs: int, outputs: int) -> None:
        add_conv(f"{name}.depthwise", 1, inputs, 3)
        add_conv(f"{name}.pointwise", inputs, outputs, 1)

    def add_classifier(name: str, inputs: int) -> None:
        shape_of[f"{name}.weight"] = (arch.outputs, inputs, 1, 1)
        shape_of[f"{name}.bias"] = (arch.outputs,)

    for number, (inputs, outputs, kernel, _) in enumerate(arch.stem_convs, 1):
        shape_of[f"backbone.conv{number}.weight"] = (outputs, inputs, kernel, kernel)
        add_norm(f"backbone.bn{number}", outputs)
    shape_of.update(
        (f"backbone.{name}", shape) for name, shape in resnet.shapes(arch.backbone).items() if name.startswith("layer")
    )
    channels, width = arch.backbone.features, arch.head_channels
    add_conv("head.image_pool", channels, width, 1, bias=False)
    add_conv("head.aspp.0", channels, width, 1)
    for i in range(1, 4):
        add_separable_conv(f"head.aspp.{i}", channels, width)
    add_conv("head.bottleneck", 5 * width, width, 3 if arch.variant == "mmseg" else 1)
    add_conv("head.low", channels // 8, arch.low_width, 1)
    add_separable_conv("head.fuse.0", width + arch.low_width, width)
    add_separable_conv("head.fuse.1", width, width)
    add_classifier("head.classifier", width)
    if arch.has_auxiliary:
        add_conv("aux.project", channels // 2, arch.aux_width, 3, bias=False)
        add_classifier("aux.classifier", arch.aux_width)
    return shape_of


def resolve(arch: Arch, fields: Sequence[Field], num_classes: int) -> Arch:
    """Complete the architecture with the number of classes and the size of the training crops."""
    height, width, _ = fields[0].shape
    return replace(arch, num_classes=arch.num_classes or num_classes, crop=(height, width))


def min_batch_size(arch: Arch) -> int:
    """Return 2: the normalization of the image pooling sees a single value of each sample and channel."""
    return 2


def flops(arch: Arch, shape: Sequence[int]) -> int:
    """Return the operations of a forward pass in training: image (H, W, 3), with the auxiliary head if there is one."""
    height, width, _ = shape
    strides = [stage.stride for stage in stages(arch)]

    def halvings(name: str) -> int:
        if name.startswith("backbone.conv"):
            return 1
        if name.startswith("backbone."):
            strided = "conv2" if arch.backbone.expansion == 4 else "conv1"
            return 2 + counting.halvings_in_stages(name.removeprefix("backbone."), strides, strided)
        if name.startswith("aux."):
            return 2 + strides[:3].count(2)
        return 2 + (strides.count(2) if name.startswith(("head.aspp.", "head.bottleneck.")) else 0)

    def positions(name: str) -> int:
        return 1 if name.startswith("head.image_pool.") else counting.pixels(height, width, halvings(name))

    return counting.of_weights(shapes(arch), positions)


def checkpointed_modules(arch: Arch) -> tuple[str, ...]:
    """Return the names of the backbone's blocks. The head, which runs once, keeps its activations."""
    return tuple(f"backbone.{name}" for name in resnet.checkpointed_modules(arch.backbone))


def dropout_masks(arch: Arch) -> tuple[DropoutMask, ...]:
    """Return the dropout masks of the head and, if there is one, of the auxiliary head.

    (channels,), but (channels, height, width) for the head of the paddleseg variant.
    """
    if arch.dropout == 0:
        return ()
    head_shape: tuple[int, ...] = (arch.head_channels,)
    if arch.variant == "paddleseg":
        if arch.crop is None:
            raise SettingError("crop", "not known yet; set it, or resolve the architecture with a data set")
        head_shape += tuple(feature_size(arch, size) for size in arch.crop)
    masks = [DropoutMask("dropout", head_shape, arch.dropout)]
    if arch.has_auxiliary:
        masks.append(DropoutMask("aux_dropout", (arch.aux_width,), arch.dropout))
    return tuple(masks)


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """Return the initialization of the variant.

    mmseg: He normal by fan-out for convolutions, N(0, 0.01) for the classifiers. paddleseg: He normal by fan-in. Both
    count the channels of all groups of a depthwise convolution.
    """
    if arch.zero_gamma and resnet.is_last_bn_weight(arch.backbone, name):
        return Initializer("zeros")
    if len(shape) < 4:
        is_one = name.endswith("running_var") or (is_norm(name) and name.endswith(".weight"))
        return Initializer("ones") if is_one else zeros(name)
    if arch.variant == "paddleseg":
        inputs = shape[0] if ".depthwise." in name else shape[1]
        return normal((2 / (inputs * shape[2] * shape[3])) ** 0.5)
    return normal(0.01) if is_head(name) else kaiming_normal(shape)


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """Return (learning-rate factor, weight-decay factor) of a parameter."""
    return 1.0, 0.0 if arch.decay == "weights" and (is_norm(name) or name.endswith(".bias")) else 1.0


def is_head(name: str) -> bool:
    """Return whether a tensor belongs to a classifier."""
    return name.startswith(("head.classifier.", "aux.classifier."))


def not_pretrained(name: str) -> bool:
    """Return whether weights pretrained on ImageNet are not used for a tensor: all but the backbone."""
    return not name.startswith("backbone.")


def is_norm(name: str) -> bool:
    """Return whether a tensor belongs to a batch normalization."""
    return resnet.is_norm(name)
