"""DeepLabV3+ in PyTorch, parallel to paddle.py and mindspore.py; spec.py describes options and tensor names."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from zoo.models.deeplabv3plus.spec import Arch, stages
from zoo.models.resnet.torch import BasicBlock, Bottleneck, conv1x1


class Model(nn.Module):
    """DeepLabV3+: image (N, 3, H, W) float, dropout masks or None -> logits (N, num_classes, H, W).

    In training, a tuple of the logits of the head and, if there is one, of the auxiliary head.
    """

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

    def forward_features(self, image: torch.Tensor) -> torch.Tensor:
        """Return the maps of the backbone: (N, 3, H, W) -> (N, features, H/16, W/16) at an output stride of 16."""
        return self.backbone(image)[2]

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifiers by some for other classes, with the framework's own initial values."""
        for head in (self.head, self.aux):
            if head is not None:
                old = head.classifier
                head.classifier = nn.Conv2d(old.in_channels, num_classes, 1, device=old.weight.device)


class Backbone(nn.Module):
    """Dilated ResNet: (N, 3, H, W) -> the outputs of layer1 (a quarter of the size), layer3 and layer4."""

    def __init__(self, arch: Arch):
        super().__init__()
        convs = [nn.Conv2d(i, o, k, s, k // 2, bias=False) for i, o, k, s in arch.stem_convs]
        norms = [nn.BatchNorm2d(o) for _, o, _, _ in arch.stem_convs]
        self.conv1, self.bn1, self.is_deep = convs[0], norms[0], arch.stem == "deep"
        if self.is_deep:
            (_, self.conv2, self.conv3), (_, self.bn2, self.bn3) = convs, norms
        block = Bottleneck if arch.backbone.expansion == 4 else BasicBlock
        layers, inputs = [], arch.width
        for stage in stages(arch):
            stage_inputs, layer = inputs, []
            for i, dilation in enumerate(stage.dilations):
                layer.append(block(inputs, stage.width, stage.stride if i == 0 else 1, dilation))
                inputs = stage.width * block.expansion
            if arch.avg_down and stage.stride == 2:
                layer[0].downsample = AvgPoolShortcut(stage_inputs, inputs)
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


class AvgPoolShortcut(nn.Sequential):
    """Shortcut that halves the size by average pooling over 2x2 pixels (ResNet-D, arXiv:1812.01187)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(conv1x1(inputs, outputs, 1), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(F.avg_pool2d(x, 2, 2, ceil_mode=True))


class Head(nn.Module):
    """Atrous spatial pyramid pooling on layer4, fused with layer1 -> logits (N, num_classes, H/4, W/4)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.is_mmseg = arch.variant == "mmseg"
        self.dropout_rate, self.align_corners = arch.dropout, arch.align_corners
        channels, width, bias = arch.backbone.features, arch.head_channels, not self.is_mmseg
        self.image_pool = ConvModule(channels, width, 1)
        self.aspp = nn.ModuleList(
            [ConvModule(channels, width, 1, bias=bias)]
            + [SeparableConvModule(channels, width, rate, self.is_mmseg) for rate in arch.rates]
        )
        self.bottleneck = ConvModule(5 * width, width, 3 if self.is_mmseg else 1, bias=bias)
        self.low = ConvModule(channels // 8, arch.low_width, 1, bias=bias)
        self.fuse = nn.Sequential(
            SeparableConvModule(width + arch.low_width, width, 1, self.is_mmseg),
            SeparableConvModule(width, width, 1, self.is_mmseg),
        )
        self.classifier = nn.Conv2d(width, arch.outputs, 1)

    def forward(self, low: torch.Tensor, high: torch.Tensor, dropout: torch.Tensor | None) -> torch.Tensor:
        pooled = self.image_pool(high.mean((2, 3), keepdim=True)).expand(-1, -1, *high.shape[2:])
        branches = [branch(high) for branch in self.aspp]
        branches = [pooled] + branches if self.is_mmseg else branches + [pooled]
        x = self.bottleneck(torch.cat(branches, 1))
        if not self.is_mmseg:
            x = apply_dropout(x, dropout, self.dropout_rate)
        low = self.low(low)
        x = self.fuse(torch.cat([resize(x, low.shape[2:], self.align_corners), low], 1))
        if self.is_mmseg:
            x = apply_dropout(x, dropout, self.dropout_rate)
        return self.classifier(x)


class AuxiliaryHead(nn.Module):
    """Fully convolutional head on layer3 -> logits (N, num_classes, H/8, W/8)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.dropout_rate = arch.dropout
        self.project = ConvModule(arch.backbone.features // 2, arch.aux_width, 3)
        self.classifier = nn.Conv2d(arch.aux_width, arch.outputs, 1)

    def forward(self, middle: torch.Tensor, dropout: torch.Tensor | None) -> torch.Tensor:
        return self.classifier(apply_dropout(self.project(middle), dropout, self.dropout_rate))


class ConvModule(nn.Module):
    """Convolution that keeps the size, batch normalization and optionally ReLU."""

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


class SeparableConvModule(nn.Module):
    """Depthwise separable convolution: a 3x3 depthwise, then a 1x1 pointwise convolution."""

    def __init__(self, inputs: int, outputs: int, dilation: int, is_mmseg: bool):
        super().__init__()
        self.depthwise = ConvModule(inputs, inputs, 3, dilation, groups=inputs, bias=not is_mmseg, relu=is_mmseg)
        self.pointwise = ConvModule(inputs, outputs, 1, bias=not is_mmseg)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pointwise(self.depthwise(x))


def resize(x: torch.Tensor, size: Sequence[int], align_corners: bool) -> torch.Tensor:
    """Resize bilinearly: (N, C, h, w) -> (N, C, *size)."""
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=align_corners)


def apply_dropout(x: torch.Tensor, mask: torch.Tensor | None, rate: float) -> torch.Tensor:
    """Apply dropout with a mask of channels (N, C) or of elements (N, C, h, w); None in evaluation: do nothing."""
    if mask is None:
        return x
    return x * (mask.reshape(*mask.shape, 1, 1) if mask.dim() == 2 else mask).to(x.dtype) / (1 - rate)
