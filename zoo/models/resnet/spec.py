"""ResNet v1.5 (arXiv:1512.03385; stride on the 3x3 convolution): what is the same in every framework.

Canonical names are torchvision's: conv1, bn1, layer{1..4}.{block}.conv{1..3} / .bn{1..3} / .downsample.{0,1}, fc.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from data.batch import DropoutMask, Field
from zoo.models.initializers import Initializer, kaiming_normal, uniform

TASK = "classify"
SHARDED_PARAMETERS: tuple[str, ...] = ()  # split over ranks by rows
FP32_MODULES: tuple[str, ...] = ()  # compute in fp32 whatever the mode
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
PARAMETERS = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}  # 1000 classes


@dataclass(frozen=True)
class Arch:
    depth: Literal[18, 34, 50, 101, 152] = 50
    num_classes: int | None = None  # None: as many as the data has
    width: int = 64  # channels of the stem; the paper's nets have 64
    dilate: tuple[bool, bool, bool] = (False, False, False)  # layer2..4: dilation in place of the stride
    decay: Literal["weights", "all"] = "weights"  # all: weight decay on biases and normalisations too, as torchvision
    zero_gamma: bool = False  # start each block as its shortcut: the scale of its last normalisation is 0
    pretrained: Literal["imagenet"] | None = None

    def __post_init__(self):
        if self.width < 1:
            raise ValueError("width: must be at least 1")
        if self.num_classes is not None and self.num_classes < 1:
            raise ValueError("num_classes: must be at least 1")

    @property
    def expansion(self) -> int:
        return 4 if self.depth >= 50 else 1

    @property
    def features(self) -> int:
        """Channels in front of the classifier."""
        return 8 * self.width * self.expansion


def stages(arch: Arch) -> tuple[tuple[int, int, int, int, int], ...]:
    """(blocks, width, stride, dilation of the first block, dilation of the others) of layer1..layer4."""
    rows, dilation = [], 1
    for stage, blocks in enumerate(BLOCKS[arch.depth]):
        stride, first = (1 if stage == 0 else 2), dilation
        if stage > 0 and arch.dilate[stage - 1]:
            stride, dilation = 1, dilation * 2
        rows.append((blocks, arch.width << stage, stride, first, dilation))
    return tuple(rows)


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Every parameter and running statistic, by canonical name; num_classes must be known."""
    found: dict[str, tuple[int, ...]] = {}

    def layer(conv: str, norm: str, inputs: int, outputs: int, kernel: int) -> None:
        found[f"{conv}.weight"] = (outputs, inputs, kernel, kernel)
        found.update((f"{norm}.{part}", (outputs,)) for part in ("weight", "bias", "running_mean", "running_var"))

    layer("conv1", "bn1", 3, arch.width, 7)
    inputs = arch.width
    for number, (blocks, width, _, _, _) in enumerate(stages(arch), 1):
        for i in range(blocks):
            block, outputs = f"layer{number}.{i}", width * arch.expansion
            kernels = ((1, width), (3, width), (1, outputs)) if arch.expansion == 4 else ((3, width), (3, width))
            before = inputs
            for k, (kernel, channels) in enumerate(kernels, 1):
                layer(f"{block}.conv{k}", f"{block}.bn{k}", before, channels, kernel)
                before = channels
            if i == 0 and (inputs != outputs or number > 1):
                layer(f"{block}.downsample.0", f"{block}.downsample.1", inputs, outputs, 1)
            inputs = outputs
    return {**found, "fc.weight": (arch.num_classes, arch.features), "fc.bias": (arch.num_classes,)}


def resolve(arch: Arch, fields: Sequence[Field], classes: int) -> Arch:
    """The architecture completed by what the data says."""
    return replace(arch, num_classes=arch.num_classes or classes)


def min_batch_size(arch: Arch) -> int:
    """Samples that the batch statistics of a step need."""
    return 1


def dropout_masks(arch: Arch) -> tuple[DropoutMask, ...]:
    return ()


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """torchvision's laws: He normal by fan-out for convolutions, 1/sqrt(fan_in) uniform for the classifier."""
    if arch.zero_gamma and ends_block(arch, name):
        return Initializer("zeros")
    if name.startswith("fc."):
        return uniform(shape[1] ** -0.5) if name.endswith("weight") else Initializer("zeros")
    if name.endswith((".running_var",)) or (is_norm(name) and name.endswith(".weight")):
        return Initializer("ones")
    if len(shape) >= 4:
        return kaiming_normal(shape)
    return Initializer("zeros")


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """(learning-rate factor, weight-decay factor) of a parameter; a factor of 0 freezes it."""
    return 1.0, 0.0 if arch.decay == "weights" and (is_norm(name) or name.endswith(".bias")) else 1.0


def is_head(name: str) -> bool:
    """Whether a name hangs on the classes."""
    return name.startswith("fc.")


def not_pretrained(name: str) -> bool:
    """Whether a net that starts from ImageNet weights draws this tensor by itself."""
    return is_head(name)


def ends_block(arch: Arch, name: str) -> bool:
    """Whether a name is the scale of a block's last normalisation."""
    return "layer" in name and name.endswith(f".bn{3 if arch.expansion == 4 else 2}.weight")


def is_norm(name: str) -> bool:
    """Whether a name belongs to a batch normalisation."""
    module = name.rsplit(".", 1)[0]
    return module.rsplit(".", 1)[-1].startswith("bn") or module.endswith("downsample.1")
