"""ArcFace's IResNet (arXiv:1801.07698): what is the same in every framework.

Canonical names are insightface's: conv1, bn1, prelu, bn2, fc, features and, in layer{1..4}.{block}, bn1, conv1, bn2,
prelu, conv2, bn3, downsample.{0,1}. Beside them stands head.weight, a row per class, which the objective holds and not
the net.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from data.batch import DropoutMask, Field
from zoo.models.initializers import Initializer, constant, kaiming_normal, normal, uniform
from zoo.models.resnet import spec as resnet

TASK = "face"
BLOCKS = {  # 101 and 152 are PLSC's, the others insightface's, 50 that of both; every block has two convolutions
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 14, 3),
    100: (3, 13, 30, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (6, 26, 60, 6),
}
PARAMETERS = {  # without the class matrix
    "insightface": {18: 24_025_600, 34: 34_139_328, 50: 43_590_848, 100: 65_156_160, 200: 118_833_920},
    "plsc": {50: 43_584_985, 101: 54_215_650, 152: 70_753_779},
}
SIZE = 112  # of the aligned pictures that published nets are trained with
HEAD = "head.weight"  # the class matrix
SHARDED_PARAMETERS = (HEAD,)  # split over ranks by rows
FP32_MODULES = ("fc", "features")  # compute in fp32 whatever the mode
NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Arch:
    depth: Literal[18, 34, 50, 100, 101, 152, 200] = 50
    variant: Literal["insightface", "plsc"] = "insightface"  # whose slopes, epsilon, dropout and initial weights
    num_classes: int | None = None  # None: as many as the data has
    embedding: int = 512
    width: int = 64  # channels of the stem; the published nets have 64
    size: int | None = None  # side of the pictures in pixels; None: as the data has it, else 112
    dropout: float | None = None  # in front of fc; None: 0.4 for plsc, else 0
    decay: Literal["weights", "all"] = "all"  # weights: no decay on biases, normalisations and PReLUs

    def __post_init__(self):
        for key in ("embedding", "width", "size", "num_classes"):
            if getattr(self, key) is not None and getattr(self, key) < 1:
                raise ValueError(f"{key}: must be at least 1")
        if not 0 <= self.rate < 1:
            raise ValueError("dropout: must lie in [0, 1)")

    @property
    def is_plsc(self) -> bool:
        return self.variant == "plsc"

    @property
    def rate(self) -> float:
        """Of the dropout."""
        return self.dropout if self.dropout is not None else 0.4 if self.is_plsc else 0.0

    @property
    def epsilon(self) -> float:
        """Of every batch normalisation."""
        return 2e-5 if self.is_plsc else 1e-5

    @property
    def features(self) -> int:
        """Inputs of fc: 8 * width channels of a map that was halved four times, rounding up."""
        return 8 * self.width * (-(-(self.size or SIZE) // 16)) ** 2


def stages(arch: Arch) -> tuple[tuple[int, int], ...]:
    """(blocks, width) of layer1..layer4; the first block of each has stride 2."""
    return tuple((blocks, arch.width << number) for number, blocks in enumerate(BLOCKS[arch.depth]))


def slopes(arch: Arch, channels: int) -> int:
    """Parameters of a PReLU: PLSC's have one for all channels."""
    return 1 if arch.is_plsc else channels


def shapes(arch: Arch) -> dict[str, tuple[int, ...]]:
    """Every parameter and running statistic, by canonical name; num_classes must be known."""
    found: dict[str, tuple[int, ...]] = {}

    def conv(name: str, inputs: int, outputs: int, kernel: int) -> None:
        found[f"{name}.weight"] = (outputs, inputs, kernel, kernel)

    def norm(name: str, channels: int) -> None:
        found.update((f"{name}.{part}", (channels,)) for part in NORM)

    def prelu(name: str, channels: int) -> None:
        found[f"{name}.weight"] = (slopes(arch, channels),)

    conv("conv1", 3, arch.width, 3)
    norm("bn1", arch.width)
    prelu("prelu", arch.width)
    inputs = arch.width
    for number, (blocks, width) in enumerate(stages(arch), 1):
        for i in range(blocks):
            block = f"layer{number}.{i}"
            norm(f"{block}.bn1", inputs)
            conv(f"{block}.conv1", inputs, width, 3)
            norm(f"{block}.bn2", width)
            prelu(f"{block}.prelu", width)
            conv(f"{block}.conv2", width, width, 3)
            norm(f"{block}.bn3", width)
            if i == 0:
                conv(f"{block}.downsample.0", inputs, width, 1)
                norm(f"{block}.downsample.1", width)
            inputs = width
    norm("bn2", inputs)
    found.update({"fc.weight": (arch.embedding, arch.features), "fc.bias": (arch.embedding,)})
    norm("features", arch.embedding)
    return {**found, HEAD: (arch.num_classes, arch.embedding)}


def resolve(arch: Arch, fields: Sequence[Field], classes: int) -> Arch:
    """The architecture completed by what the data says. Raises ValueError naming the key."""
    height, width, _ = fields[0].shape
    if height != width or arch.size not in (None, height):
        raise ValueError(
            f"size: the net wants square pictures{f' of {arch.size} pixels' if arch.size else ''}, the "
            f"data gives {height} x {width}"
        )
    return replace(arch, num_classes=arch.num_classes or classes, size=height)


def min_batch_size(arch: Arch) -> int:
    """Samples that the batch statistics of a step need: `features` sees one value of each."""
    return 2


def dropout_masks(arch: Arch) -> tuple[DropoutMask, ...]:
    """The dropout mask in front of fc."""
    return (DropoutMask("dropout", (arch.features,), arch.rate),) if arch.rate else ()


def initializer(arch: Arch, name: str, shape: Sequence[int]) -> Initializer:
    """insightface: N(0, 0.1) for convolutions, PyTorch's default for fc, N(0, 0.01) for the classes. PLSC: normal by
    fan-out for convolutions and fc, by the mean of both fans for the classes. Slopes are 0.25."""
    if name == HEAD:
        return normal((2 / (shape[0] + shape[1])) ** 0.5 if arch.is_plsc else 0.01)
    if name.endswith("prelu.weight"):
        return constant(0.25)
    if is_norm(name):
        return Initializer("ones") if name.endswith((".weight", ".running_var")) else Initializer("zeros")
    if arch.is_plsc:
        return Initializer("zeros") if name.endswith(".bias") else kaiming_normal(shape)
    return uniform(arch.features**-0.5) if name.startswith("fc.") else normal(0.1)


def lr_and_decay_scale(arch: Arch, name: str) -> tuple[float, float]:
    """(learning-rate factor, weight-decay factor) of a parameter; a factor of 0 freezes it.

    insightface freezes the scale of the last normalisation at 1; its shift trains, and it uses batch statistics.
    """
    factor = 0.0 if name == "features.weight" and not arch.is_plsc else 1.0
    spared = is_norm(name) or name.endswith((".bias", "prelu.weight"))
    return factor, 0.0 if arch.decay == "weights" and spared else 1.0


def is_head(name: str) -> bool:
    """Whether a name hangs on the classes."""
    return name == HEAD


def not_pretrained(name: str) -> bool:
    """Whether a net that starts from published weights, which have no classes, draws this tensor by itself."""
    return is_head(name)


def is_norm(name: str) -> bool:
    """Whether a name belongs to a batch normalisation."""
    return resnet.is_norm(name) or name.startswith("features.")
