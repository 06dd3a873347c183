"""DeepLabV3+ in PyTorch. Names, options and arithmetic are those of spec.py."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from zoo.models.deeplabv3plus.spec import Arch, stages
from zoo.models.resnet.torch import BasicBlock, Bottleneck, conv1x1


class Model(nn.Module):
    """image (N, 3, H, W) float -> logits (N, num_classes, H, W); in training, a tuple of the head's and the auxiliary
    head's."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.backbone = Backbone(arch)
        self.head = Head(arch)
        self.aux = AuxiliaryHead(arch) if arch.has_auxiliary else None
        self.align_corners = arch.align_corners

    def forward(
        self, image: torch.Tensor, dropout: torch.Tensor | None = None, aux_dropout: torch.Tensor | None = None
    ):
        size = image.shape[2:]
        low, middle, high = self.backbone(image)
        logits = resize(self.head(low, high, dropout), size, self.align_corners)
        if not self.training:
            return logits
        if self.aux is None:
            return (logits,)
        return logits, resize(self.aux(middle, aux_dropout), size, self.align_corners)


class Backbone(nn.Module):
    """(N, 3, H, W) -> the outputs of layer1 (a quarter of the size), layer3 and layer4."""

    def __init__(self, arch: Arch):
        super().__init__()
        convolutions = [nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in arch.stem_convolutions]
        norms = [nn.BatchNorm2d(o) for _, o, _, _ in arch.stem_convolutions]
        self.conv1, self.bn1, self.is_deep = convolutions[0], norms[0], arch.stem == "deep"
        if self.is_deep:
            (_, self.conv2, self.conv3), (_, self.bn2, self.bn3) = convolutions, norms
        block = Bottleneck if arch.backbone.expansion == 4 else BasicBlock
        layers, inputs = [], arch.width
        for stage in stages(arch):
            layer = []
            for i, dilation in enumerate(stage.dilations):
                layer.append(block(inputs, stage.width, stage.stride if i == 0 else 1, dilation))
                inputs = stage.width * block.expansion
            if arch.pooled_shortcut and stage.stride == 2:
                layer[0].downsample = PooledShortcut(layer[0].downsample)
            layers.append(nn.Sequential(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        if self.is_deep:
            x = F.relu(self.bn2(self.conv2(x)), inplace=True)
            x = F.relu(self.bn3(self.conv3(x)), inplace=True)
        low = self.layer1(F.max_pool2d(x, 3, 2, 1))
        middle = self.layer3(self.layer2(low))
        return low, middle, self.layer4(middle)


class PooledShortcut(nn.Sequential):
    """A shortcut that halves the picture by means of 2x2 pixels (ResNet-D, arXiv:1812.01187)."""

    def __init__(self, strided: nn.Sequential):
        convolution, norm = strided
        super().__init__(conv1x1(convolution.in_channels, convolution.out_channels, 1), norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(F.avg_pool2d(x, 2, 2, ceil_mode=True))


class Head(nn.Module):
    """Atrous spatial pyramid on layer4, joined by layer1: -> logits (N, num_classes, H/4, W/4)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.is_mmseg, self.rate, self.align_corners = arch.variant == "mmseg", arch.dropout, arch.align_corners
        channels, wide, bias = arch.backbone.features, arch.head_channels, not self.is_mmseg
        self.image_pool = Unit(channels, wide, 1)
        self.aspp = nn.ModuleList(
            [Unit(channels, wide, 1, bias=bias)]
            + [Separable(channels, wide, rate, self.is_mmseg) for rate in arch.rates]
        )
        self.bottleneck = Unit(5 * wide, wide, 3 if self.is_mmseg else 1, bias=bias)
        self.low = Unit(channels // 8, arch.low_width, 1, bias=bias)
        self.fuse = nn.Sequential(
            Separable(wide + arch.low_width, wide, 1, self.is_mmseg), Separable(wide, wide, 1, self.is_mmseg)
        )
        self.classifier = nn.Conv2d(wide, arch.num_classes, 1)

    def forward(self, low: torch.Tensor, high: torch.Tensor, dropout: torch.Tensor | None) -> torch.Tensor:
        pooled = self.image_pool(high.mean((2, 3), keepdim=True)).expand(-1, -1, *high.shape[2:])
        branches = [branch(high) for branch in self.aspp]
        branches = [pooled] + branches if self.is_mmseg else branches + [pooled]
        x = self.bottleneck(torch.cat(branches, 1))
        if not self.is_mmseg:
            x = drop(x, dropout, self.rate)
        low = self.low(low)
        x = self.fuse(torch.cat([resize(x, low.shape[2:], self.align_corners), low], 1))
        if self.is_mmseg:
            x = drop(x, dropout, self.rate)
        return self.classifier(x)


class AuxiliaryHead(nn.Module):
    """layer3 -> logits (N, num_classes, H/8, W/8)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.rate = arch.dropout
        self.project = Unit(arch.backbone.features // 2, arch.aux_width, 3)
        self.classifier = nn.Conv2d(arch.aux_width, arch.num_classes, 1)

    def forward(self, middle: torch.Tensor, dropout: torch.Tensor | None) -> torch.Tensor:
        return self.classifier(drop(self.project(middle), dropout, self.rate))


class Unit(nn.Module):
    """Convolution of the same size, batch normalisation and, if wanted, ReLU."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
        relu: bool = True,
    ):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, 1, kernel // 2 * dilation, dilation, groups, bias)
        self.bn = nn.BatchNorm2d(outputs)
        self.relu = relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn(self.conv(x))
        return F.relu(x, inplace=True) if self.relu else x


class Separable(nn.Module):
    """A 3x3 convolution of each channel by itself, then a 1x1 convolution."""

    def __init__(self, inputs: int, outputs: int, dilation: int, is_mmseg: bool):
        super().__init__()
        self.depthwise = Unit(inputs, inputs, 3, dilation, inputs, not is_mmseg, is_mmseg)
        self.pointwise = Unit(inputs, outputs, 1, bias=not is_mmseg)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pointwise(self.depthwise(x))


def resize(x: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    """(N, C, h, w) -> (N, C, H, W), bilinear."""
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=align_corners)


def drop(x: torch.Tensor, mask: torch.Tensor | None, rate: float) -> torch.Tensor:
    """Dropout by a mask (N, C) of channels or (N, C, h, w) of elements; none in an evaluation."""
    if mask is None:
        return x
    return x * (mask.reshape(*mask.shape, 1, 1) if mask.dim() == 2 else mask).to(x.dtype) / (1 - rate)
