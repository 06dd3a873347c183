"""Specification of IResNet, the backbone of ArcFace (arXiv:1801.07698).

Canonical names are insightface's: conv1, bn1, prelu, bn2, fc, features and, in layer{1..4}.{block}, bn1, conv1, bn2,
prelu, conv2, bn3, downsample.{0,1}. The classifier weight head.weight, a row per class, is a parameter of the objective
and not of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from zoo.data.batch import DropoutMask, Field
from zoo.data.fields import Count, Doc, SettingError, Share
from zoo.models import flops as counting
from zoo.models.defaults import Architecture
from zoo.models.initializers import Initializer, constant, kaiming_normal, normal, uniform, zeros
from zoo.models.resnet import spec as resnet

TASK = "face"
BLOCKS = {  # 101 and 152 are PLSC's, 50 is in both, the others are insightface's; each block has two convolutions
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 14, 3),
    100: (3, 13, 30, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (6, 26, 60, 6),
}
IMAGE_SIZE = 112  # side of the aligned images that published models are trained with
VARIANTS = {f"iresnet{depth}": {"depth": depth} for depth in BLOCKS}
NUM_CLASSES = 1
INPUT_SHAPE = (IMAGE_SIZE, IMAGE_SIZE, 3)
HEAD_WEIGHT = "head.weight"
SHARDED_PARAMETERS: tuple[str, ...] = (HEAD_WEIGHT,)
FP32_MODULES: tuple[str, ...] = ("fc", "features")


@dataclass(frozen=True)
class Arch(Architecture):
    depth: Annotated[Literal[18, 34, 50, 100, 101, 152, 200], Doc("Layers of the network.")] = 50
    variant: Annotated[
        Literal["insightface", "plsc"],
        Doc("Implementation that PReLU slopes, epsilon, dropout and initialization follow."),
    ] = "insightface"
    num_classes: Annotated[Count | None, Doc("Rows of the class matrix; null: the identities of the data.")] = None
    embedding: Annotated[Count, Doc("Elements of an embedding.")] = 512
    width: Annotated[Count, Doc("Channels of the stem, 64 in the published models.")] = 64
    size: Annotated[Count | None, Doc("Side of the square images, in pixels; null: that of the data, else 112.")] = None
    dropout: Annotated[Share | None, Doc("Dropout in front of the last layer; null: 0.4 for plsc, else 0.")] = None
    decay: Annotated[
        Literal["weights", "all"],
        Doc("Parameters with weight decay; weights: none on biases, normalizations and PReLUs."),
    ] = "all"

    @property
    def is_plsc(self) -> bool:
        return self.variant == "plsc"

    @property
    def dropout_rate(self) -> float:
        """Probability of a zero in the dropout mask in front of fc."""
        return self.dropout if self.dropout is not None else 0.4 if self.is_plsc else 0.0

    @property
    def epsilon(self) -> float:
        return 2e-5 if self.is_plsc else 1e-5

    @property
    def features(self) -> int:
        """Inputs of fc: the 8 * width channels of a feature map that was halved four times, rounding up."""
        return 8 * self.width * (-(-(self.size or IMAGE_SIZE) // 16)) ** 2


def stages(arch: Arch) -> tuple[tuple[int, int], ...]:
    """Return (blocks, width) of layer1..layer4; the first block of each has stride 2."""
    return tuple((blocks, arch.width << number) for number, blocks in enumerate(BLOCKS[arch.depth]))


def prelu_slopes(arch: Arch, channels: int) -> int:
    """Return the number of parameters of a PReLU: one per channel, but a single one in PLSC's variant."""
    return 1 if arch.is_plsc else channels


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter and running statistic by canonical name."""
    shape_of: dict[str, tuple[int, ...]] = {}

    def add_conv(name: str, inputs: int, outputs: int, kernel: int) -> None:
        shape_of[f"{name}.weight"] = (outputs, inputs, kernel, kernel)

    def add_norm(name: str, channels: int) -> None:
        shape_of.update((f"{name}.{tensor}", (channels,)) for tensor in resnet.BATCH_NORM_TENSORS)

    def add_prelu(name: str, channels: int) -> None:
        shape_of[f"{name}.weight"] = (prelu_slopes(arch, channels),)

    add_conv("conv1", 3, arch.width, 3)
    add_norm("bn1", arch.width)
    add_prelu("prelu", arch.width)
    inputs = arch.width
    for number, (blocks, width) in enumerate(stages(arch), 1):
        for i in range(blocks):
            block = f"layer{number}.{i}"
            add_norm(f"{block}.bn1", inputs)
            add_conv(f"{block}.conv1", inputs, width, 3)
            add_norm(f"{block}.bn2", width)
            add_prelu(f"{block}.prelu", width)
            add_conv(f"{block}.conv2", width, width, 3)
            add_norm(f"{block}.bn3", width)
            if i == 0:
                add_conv(f"{block}.downsample.0", inputs, width, 1)
                add_norm(f"{block}.downsample.1", width)
            inputs = width
    add_norm("bn2", inputs)
    shape_of.update({"fc.weight": (arch.embedding, arch.features), "fc.bias": (arch.embedding,)})
    add_norm("features", arch.embedding)
    return {**shape_of, HEAD_WEIGHT: (arch.outputs, arch.embedding)}


def resolve(arch: Arch, fields: Sequence[Field], num_classes: int) -> Arch:
    """Complete the architecture with the number of classes and the image size."""
    height, width, _ = fields[0].shape
    if height != width:
        raise SettingError(
            "size", f"the model takes square images, but the data gives {height} x {width}; set data.size"
        )
    if arch.size not in (None, height):
        raise SettingError(
            "size",
            f"the model takes images of {arch.size} x {arch.size}, but the data gives {height} x {width}; make "
            "them equal, or leave this key out",
        )
    return replace(arch, num_classes=arch.num_classes or num_classes, size=height)


def min_batch_size(arch: Arch) -> int:
    """Return 2: the normalization `features` sees a single value of each sample and channel."""
    return 2


def flops(arch: Arch, shape: Sequence[int]) -> int:
    """Return the operations of a forward pass: image (H, W, 3), with all rows of the classifier weight."""
    height, width, _ = shape

    def positions(name: str) -> int:
        if name.startswith("conv1."):
            return counting.pixels(height, width, 0)
        if not name.startswith("layer"):
            return 1
        return counting.pixels(height, width, counting.halvings_in_stages(name, (2, 2, 2, 2), "conv2"))

    return counting.of_weights(shapes(arch), positions)


def checkpointed_modules(arch: Arch) -> tuple[str, ...]:
    return tuple(f"layer{number}.{i}" for number, (count, _) in enumerate(stages(arch), 1) for i in range(count))


def dropout_masks(arch: Arch) -> tuple[DropoutMask, ...]:
    """Return the dropout mask in front of fc: (features,)."""
    return (DropoutMask("dropout", (arch.features,), arch.dropout_rate),) if arch.dropout_rate else ()


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """Return the initialization of the variant; PReLU slopes start at 0.25 in both.

    insightface: N(0, 0.1) for convolutions, PyTorch's default (uniform within 1/sqrt(fan-in)) for fc, N(0, 0.01) for
    the classifier weight. PLSC: normal by fan-out for convolutions and fc, by the mean of fan-in and fan-out (Glorot)
    for the classifier weight.
    """
    if name == HEAD_WEIGHT:
        return normal((2 / (shape[0] + shape[1])) ** 0.5 if arch.is_plsc else 0.01)
    if name.endswith("prelu.weight"):
        return constant(0.25)
    if is_norm(name):
        return Initializer("ones") if name.endswith((".weight", ".running_var")) else zeros(name)
    if arch.is_plsc:
        return Initializer("zeros") if name.endswith(".bias") else kaiming_normal(shape)
    return uniform(arch.features**-0.5) if name.startswith("fc.") else normal(0.1)


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """Return (learning-rate factor, weight-decay factor) of a parameter.

    insightface freezes the weight of the last normalization at 1. Its bias is trained, and it uses batch statistics.
    """
    lr_factor = 0.0 if name == "features.weight" and not arch.is_plsc else 1.0
    is_scale_or_bias = is_norm(name) or name.endswith((".bias", "prelu.weight"))
    return lr_factor, 0.0 if arch.decay == "weights" and is_scale_or_bias else 1.0


def is_head(name: str) -> bool:
    """Return whether a tensor is the classifier weight."""
    return name == HEAD_WEIGHT


def is_norm(name: str) -> bool:
    """Return whether a tensor belongs to a batch normalization."""
    return resnet.is_norm(name) or name.startswith("features.")
