"""Specification of ResNet v1.5 (arXiv:1512.03385, with the stride on the 3x3 convolution of a bottleneck).

Canonical names are torchvision's: conv1, bn1, layer{1..4}.{block}.conv{1..3} / .bn{1..3} / .downsample.{0,1}, fc.

`padding` of the layers of stride 2, the stem's 7x7 convolution and max pooling and a 3x3 convolution in layer2..layer4:

    symmetric  the same number of pixels on all sides: torchvision, and almost every other project
    same_pool  max pooling by the rule `same` of TensorFlow and MindSpore (see same_padding): mindspore-lab/mindcv
    same       all of them by this rule: the ResNet-50, -101 and -152 of mindspore-ai/models, which has bn_eps 1e-4
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

from zoo.data.batch import Field
from zoo.data.fields import Count, Doc, Range, SettingError
from zoo.models import flops as counting
from zoo.models.defaults import Architecture
from zoo.models.initializers import Initializer, kaiming_normal, normal, uniform, zeros

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
VARIANTS = {f"resnet{depth}": {"depth": depth} for depth in BLOCKS}
NUM_CLASSES = 1000
BATCH_NORM_TENSORS = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Arch(Architecture):
    depth: Annotated[Literal[18, 34, 50, 101, 152], Doc("Layers of the network.")] = 50
    num_classes: Annotated[Count | None, Doc("Outputs of the classifier; null: the classes of the data.")] = None
    width: Annotated[Count, Doc("Channels of the stem, 64 in the paper.")] = 64
    dilate: Annotated[tuple[bool, bool, bool], Doc("Dilate instead of a stride in layer2, layer3 and layer4.")] = (
        False,
        False,
        False,
    )
    decay: Annotated[
        Literal["weights", "all", "all_but_bn"],
        Doc(
            "Parameters with weight decay; weights: none on biases and normalizations, all: everything, as "
            "torchvision, all_but_bn: not on those named bn*, as NVIDIA."
        ),
    ] = "weights"
    conv_init: Annotated[
        Literal["fan_out", "fan_in"],
        Doc("Fan of the convolutions' He initialization; torchvision has fan_out, NVIDIA fan_in."),
    ] = "fan_out"
    fc_bias_init: Annotated[
        Literal["zeros", "uniform"],
        Doc("Initialization of the classifier's bias; uniform: as its weight, PyTorch's default."),
    ] = "zeros"
    padding: Annotated[
        Literal["symmetric", "same_pool", "same"],
        Doc(
            "Padding of layers of stride 2; same: TensorFlow's rule, as mindspore-ai, same_pool: of max pooling "
            "alone, as mindcv."
        ),
    ] = "symmetric"
    bn_eps: Annotated[
        float, Range(low=0, high=1, open_low=True, open_high=True), Doc("Epsilon of every batch normalization.")
    ] = 1e-5
    zero_gamma: Annotated[
        bool, Doc("Initialize the last normalization of each block to 0: the block starts as its shortcut.")
    ] = False
    pretrained: Annotated[Literal["imagenet"] | None, Doc("Initial weights; null: random.")] = None

    @property
    def same_convs(self) -> bool:
        """Whether convolutions of stride 2 have the padding `same`."""
        return self.padding == "same"

    @property
    def same_pool(self) -> bool:
        """Whether the max pooling of the stem has the padding `same`."""
        return self.padding != "symmetric"

    @property
    def expansion(self) -> int:
        """Output channels of a block as a multiple of its width: 4 for bottlenecks, 1 for basic blocks."""
        return 4 if self.depth >= 50 else 1

    @property
    def features(self) -> int:
        """Input channels of the classifier."""
        return 8 * self.width * self.expansion


class Stage(NamedTuple):
    """One of layer1..layer4."""

    blocks: int
    width: int  # channels of the 3x3 convolutions
    stride: int  # of the first block
    first_dilation: int  # of the first block
    dilation: int  # of the other blocks


def stages(arch: Arch) -> tuple[Stage, ...]:
    """Return layer1..layer4. The first block of a dilated layer keeps the dilation of the layer before it."""
    layers: list[Stage] = []
    dilation = 1
    for number, blocks in enumerate(BLOCKS[arch.depth]):
        stride, first_dilation = (1 if number == 0 else 2), dilation
        if number > 0 and arch.dilate[number - 1]:
            stride, dilation = 1, dilation * 2
        layers.append(Stage(blocks, arch.width << number, stride, first_dilation, dilation))
    return tuple(layers)


def same_padding(height: int, width: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int, int, int]:
    """Return the padding left, right, top and bottom by the rule `same` of TensorFlow and MindSpore.

    The output has 1/stride of the size, rounded up. Of an odd number of pixels, the larger half is right and bottom.
    """
    padding = []
    for size in (width, height):
        total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
        padding += [total // 2, total - total // 2]
    left, right, top, bottom = padding
    return left, right, top, bottom


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter and running statistic by canonical name."""
    shape_of: dict[str, tuple[int, ...]] = {}

    def add_conv_bn(conv: str, norm: str, inputs: int, outputs: int, kernel: int) -> None:
        shape_of[f"{conv}.weight"] = (outputs, inputs, kernel, kernel)
        shape_of.update((f"{norm}.{tensor}", (outputs,)) for tensor in BATCH_NORM_TENSORS)

    add_conv_bn("conv1", "bn1", 3, arch.width, 7)
    inputs = arch.width
    for number, stage in enumerate(stages(arch), 1):
        width, outputs = stage.width, stage.width * arch.expansion
        kernels = ((1, width), (3, width), (1, outputs)) if arch.expansion == 4 else ((3, width), (3, width))
        for i in range(stage.blocks):
            block, conv_inputs = f"layer{number}.{i}", inputs
            for k, (kernel, conv_outputs) in enumerate(kernels, 1):
                add_conv_bn(f"{block}.conv{k}", f"{block}.bn{k}", conv_inputs, conv_outputs, kernel)
                conv_inputs = conv_outputs
            if i == 0 and (inputs != outputs or number > 1):
                add_conv_bn(f"{block}.downsample.0", f"{block}.downsample.1", inputs, outputs, 1)
            inputs = outputs
    return {**shape_of, "fc.weight": (arch.outputs, arch.features), "fc.bias": (arch.outputs,)}


def resolve(arch: Arch, fields: Sequence[Field], num_classes: int) -> Arch:
    """Complete the architecture with the number of classes."""
    if len(fields[0].shape) != 3:
        raise SettingError("name", f"resnet takes images, but a sample of the data has the shape {fields[0].shape}")
    return replace(arch, num_classes=arch.num_classes or num_classes)


def flops(arch: Arch, shape: Sequence[int]) -> int:
    """Return the operations of a forward pass: image (H, W, 3)."""
    height, width, _ = shape
    return counting.of_weights(shapes(arch), lambda name: output_pixels(arch, name, height, width))


def output_pixels(arch: Arch, name: str, height: int, width: int) -> int:
    """Return the pixels of the output of the convolution that has a tensor; 1 for the classifier's."""
    if name.startswith("fc."):
        return 1
    if name.startswith("conv1."):
        return counting.pixels(height, width, 1)
    strides = [stage.stride for stage in stages(arch)]
    halvings = 2 + counting.halvings_in_stages(name, strides, "conv2" if arch.expansion == 4 else "conv1")
    return counting.pixels(height, width, halvings)


def checkpointed_modules(arch: Arch) -> tuple[str, ...]:
    return tuple(f"layer{number}.{i}" for number, count in enumerate(BLOCKS[arch.depth], 1) for i in range(count))


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """Return the initialization: He normal for convolutions, uniform within 1/sqrt(fan-in) for the classifier.

    With fc_bias_init uniform, as in torchvision and in NVIDIA's ResNet.
    """
    if arch.zero_gamma and is_last_bn_weight(arch, name):
        return Initializer("zeros")
    if name == "fc.weight" or (name == "fc.bias" and arch.fc_bias_init == "uniform"):
        return uniform(arch.features**-0.5)
    if name.endswith(".running_var") or (is_norm(name) and name.endswith(".weight")):
        return Initializer("ones")
    if len(shape) >= 4:
        return kaiming_normal(shape) if arch.conv_init == "fan_out" else normal((2 / math.prod(shape[1:])) ** 0.5)
    return zeros(name)


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """Return (learning-rate factor, weight-decay factor) of a parameter."""
    exempt = {
        "weights": is_norm(name) or name.endswith(".bias"),
        "all": False,
        "all_but_bn": name.split(".")[-2:][0].startswith("bn"),
    }
    return 1.0, 0.0 if exempt[arch.decay] else 1.0


def is_last_bn_weight(arch: Arch, name: str) -> bool:
    """Return whether a tensor is the weight of the last batch normalization of a block."""
    return "layer" in name and name.endswith(f".bn{3 if arch.expansion == 4 else 2}.weight")


def is_norm(name: str) -> bool:
    """Return whether a tensor belongs to a batch normalization."""
    module = name.rsplit(".", 1)[0]
    return module.rsplit(".", 1)[-1].startswith("bn") or module.endswith("downsample.1")
