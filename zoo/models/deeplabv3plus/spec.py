"""DeepLabV3+ (arXiv:1802.02611) on a dilated ResNet: what is the same in every framework.

Two variants are in use under this name. `mmseg` is mmsegmentation's: a wide head with a 3x3 bottleneck, batch
normalisation and ReLU between the two halves of a separable convolution, and an auxiliary head. `paddleseg` is
PaddleSeg's: half as wide, with a 1x1 bottleneck, on the backbone ResNet-vd, without an auxiliary head.

Canonical names: backbone.{conv1,bn1, ... layer1..4} as in the ResNet (a deep stem adds conv2, bn2, conv3, bn3);
head.{image_pool,aspp.0,bottleneck,low}.{conv,bn}; head.{aspp.1..3,fuse.0..1}.{depthwise,pointwise}.{conv,bn};
head.classifier; aux.project.{conv,bn}, aux.classifier.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from data.batch import DropoutMask, Field
from zoo.models.initializers import Initializer, kaiming_normal, normal
from zoo.models.resnet import spec as resnet

TASK = "segment"
SHARDED_PARAMETERS: tuple[str, ...] = ()  # split over ranks by rows
FP32_MODULES: tuple[str, ...] = ()  # compute in fp32 whatever the mode
PARAMETERS = {50: 43_589_878, 101: 62_582_006}  # mmseg, 19 classes, with the auxiliary head
PADDLESEG_PARAMETERS = {50: 26_723_395, 101: 45_715_523}
NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Arch:
    variant: Literal["mmseg", "paddleseg"] = "mmseg"
    depth: Literal[18, 50, 101] = 50
    num_classes: int | None = None  # None: as many as the data has
    width: int = 64  # channels behind the stem; the papers' nets have 64
    stem: Literal["deep", "plain"] = "deep"  # deep: three 3x3 convolutions; plain: torchvision's 7x7
    output_stride: Literal[8, 16] = 8
    multi_grid: tuple[int, ...] = ()  # dilation of each block of layer4; (): as the variant has it
    rates: tuple[int, int, int] = (12, 24, 36)  # dilations of the pyramid
    head_width: int | None = None  # None: 512 (mmseg) or 256 (paddleseg)
    low_width: int = 48  # channels that the head takes from layer1
    aux_width: int = 256
    auxiliary: bool | None = None  # a second, smaller head on layer3 while training; None: as the variant has it
    dropout: float = 0.1  # mmseg: of channels in front of the classifiers; paddleseg: of elements
    align_corners: bool = False  # of every resize; true fits inputs of 8k + 1 pixels
    decay: Literal["weights", "all"] = "all"  # all: weight decay on biases and normalisations too
    zero_gamma: bool = True  # without pretrained weights: start each block as its shortcut
    crop: tuple[int, int] | None = None  # height and width in training; None: as the data has it
    pretrained: Literal["imagenet"] | None = None

    def __post_init__(self):
        resnet.Arch(self.depth, self.num_classes, self.width)
        if self.stem == "deep" and self.width % 2:
            raise ValueError("width: must be even for a deep stem")
        if self.variant == "paddleseg" and self.stem != "deep":
            raise ValueError("stem: the paddleseg variant has a deep one")
        blocks = resnet.BLOCKS[self.depth][3]
        if self.multi_grid and (len(self.multi_grid) != blocks or min(self.multi_grid) < 1):
            raise ValueError(f"multi_grid: one dilation for each of the {blocks} blocks of layer4, each at least 1")
        if min(self.rates) < 1:
            raise ValueError("rates: must be at least 1")
        for key in ("head_width", "low_width", "aux_width"):
            if getattr(self, key) is not None and getattr(self, key) < 1:
                raise ValueError(f"{key}: must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError("dropout: must lie in [0, 1)")

    @property
    def backbone(self) -> resnet.Arch:
        return resnet.Arch(self.depth, self.num_classes, self.width)

    @property
    def head_channels(self) -> int:
        return self.head_width or (512 if self.variant == "mmseg" else 256)

    @property
    def has_auxiliary(self) -> bool:
        return self.variant == "mmseg" if self.auxiliary is None else self.auxiliary

    @property
    def pooled_shortcut(self) -> bool:
        """ResNet-vd: where a block halves the picture, its shortcut takes means of 2x2 pixels."""
        return self.variant == "paddleseg"

    @property
    def stem_convolutions(self) -> tuple[tuple[int, int, int, int], ...]:
        """(inputs, outputs, kernel, stride) of the convolutions in front of the max pooling."""
        if self.stem == "plain":
            return ((3, self.width, 7, 2),)
        half = self.width // 2
        return (3, half, 3, 2), (half, half, 3, 1), (half, self.width, 3, 1)


class Stage(NamedTuple):
    """One of layer1..layer4."""

    width: int  # of its 3x3 convolutions
    stride: int  # of its first block
    dilations: tuple[int, ...]  # of the blocks


def stages(arch: Arch) -> tuple[Stage, ...]:
    """mmseg lets the first block of a dilated layer keep half of its dilation; PaddleSeg does not, and multiplies the
    dilations of layer4 by 1, 2, 4."""
    full = {8: (1, 1, 2, 4), 16: (1, 1, 1, 2)}[arch.output_stride]
    rows: list[Stage] = []
    for number, (blocks, dilation) in enumerate(zip(resnet.BLOCKS[arch.depth], full)):
        stride = 2 if number > 0 and dilation == 1 else 1
        dilations = (dilation,) * blocks
        if arch.variant == "mmseg":
            dilations = (max(dilation // 2, 1),) + dilations[1:]
        elif number == 3:
            dilations = tuple(dilation << i for i in range(blocks))
        if number == 3 and arch.multi_grid:
            dilations = arch.multi_grid
        rows.append(Stage(arch.width << number, stride, dilations))
    return tuple(rows)


def features(arch: Arch, side: int) -> int:
    """Pixels of the pyramid's input along an axis of `side` pixels: every halving rounds up."""
    for _ in range({8: 3, 16: 4}[arch.output_stride]):
        side = -(-side // 2)
    return side


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Every parameter and running statistic, by canonical name; num_classes must be known."""
    found: dict[str, tuple[int, ...]] = {}
    bias = arch.variant == "paddleseg"  # in front of the head's normalisations

    def norm(name: str, channels: int) -> None:
        found.update((f"{name}.{part}", (channels,)) for part in NORM)

    def unit(name: str, inputs: int, outputs: int, kernel: int, bias: bool = bias) -> None:
        found[f"{name}.conv.weight"] = (outputs, inputs, kernel, kernel)
        if bias:
            found[f"{name}.conv.bias"] = (outputs,)
        norm(f"{name}.bn", outputs)

    def separable(name: str, inputs: int, outputs: int) -> None:
        found[f"{name}.depthwise.conv.weight"] = (inputs, 1, 3, 3)
        if bias:
            found[f"{name}.depthwise.conv.bias"] = (inputs,)
        norm(f"{name}.depthwise.bn", inputs)
        unit(f"{name}.pointwise", inputs, outputs, 1)

    def classifier(name: str, inputs: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (arch.num_classes, inputs, 1, 1), (arch.num_classes,)

    for number, (inputs, outputs, kernel, _) in enumerate(arch.stem_convolutions, 1):
        found[f"backbone.conv{number}.weight"] = (outputs, inputs, kernel, kernel)
        norm(f"backbone.bn{number}", outputs)
    found.update(
        (f"backbone.{name}", shape) for name, shape in resnet.shapes(arch.backbone).items() if name.startswith("layer")
    )
    channels, wide = arch.backbone.features, arch.head_channels
    unit("head.image_pool", channels, wide, 1, False)
    unit("head.aspp.0", channels, wide, 1)
    for i in range(1, 4):
        separable(f"head.aspp.{i}", channels, wide)
    unit("head.bottleneck", 5 * wide, wide, 3 if arch.variant == "mmseg" else 1)
    unit("head.low", channels // 8, arch.low_width, 1)
    separable("head.fuse.0", wide + arch.low_width, wide)
    separable("head.fuse.1", wide, wide)
    classifier("head.classifier", wide)
    if arch.has_auxiliary:
        unit("aux.project", channels // 2, arch.aux_width, 3, False)
        classifier("aux.classifier", arch.aux_width)
    return found


def resolve(arch: Arch, fields: Sequence[Field], classes: int) -> Arch:
    """The architecture completed by what the data says."""
    height, width, _ = fields[0].shape
    return replace(arch, num_classes=arch.num_classes or classes, crop=(height, width))


def min_batch_size(arch: Arch) -> int:
    """Samples that the batch statistics of a step need: the image pooling's normalisation sees one value of each."""
    return 2


def dropout_masks(arch: Arch) -> tuple[DropoutMask, ...]:
    if arch.dropout == 0:
        return ()
    if arch.variant == "paddleseg":
        pixels = tuple(features(arch, side) for side in arch.crop)
        masks = [DropoutMask("dropout", (arch.head_channels, *pixels), arch.dropout)]
    else:
        masks = [DropoutMask("dropout", (arch.head_channels,), arch.dropout)]
    if arch.has_auxiliary:
        masks.append(DropoutMask("aux_dropout", (arch.aux_width,), arch.dropout))
    return tuple(masks)


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """mmseg: He normal by fan-out, groups not counted, and N(0, 0.01) for the classifiers. paddleseg: He normal by
    fan-in, groups not counted, throughout."""
    if arch.zero_gamma and resnet.ends_block(arch.backbone, name):
        return Initializer("zeros")
    if len(shape) < 4:
        return (
            Initializer("ones")
            if name.endswith("running_var") or (is_norm(name) and name.endswith(".weight"))
            else Initializer("zeros")
        )
    if arch.variant == "paddleseg":
        inputs = shape[0] if ".depthwise." in name else shape[1]
        return normal((2 / (inputs * shape[2] * shape[3])) ** 0.5)
    return normal(0.01) if is_head(name) else kaiming_normal(shape)


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """(learning-rate factor, weight-decay factor) of a parameter."""
    return 1.0, 0.0 if arch.decay == "weights" and (is_norm(name) or name.endswith(".bias")) else 1.0


def is_head(name: str) -> bool:
    """Whether a name hangs on the classes."""
    return name.startswith(("head.classifier.", "aux.classifier."))


def not_pretrained(name: str) -> bool:
    """Whether a net that starts from ImageNet weights draws this tensor by itself."""
    return not name.startswith("backbone.")


def is_norm(name: str) -> bool:
    """Whether a name belongs to a batch normalisation."""
    return resnet.is_norm(name)
