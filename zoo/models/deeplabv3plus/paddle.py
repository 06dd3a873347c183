"""DeepLabV3+ in PaddlePaddle, parallel to torch.py and mindspore.py; spec.py describes options and tensor names."""

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F
from paddle import nn

from zoo.models.deeplabv3plus.spec import Arch, stages
from zoo.models.resnet.paddle import BasicBlock, Bottleneck, conv1x1


class Model(nn.Layer):
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
        self, image: paddle.Tensor, dropout: paddle.Tensor | None = None, aux_dropout: paddle.Tensor | None = None
    ):
        size = image.shape[2:]
        low, middle, high = self.backbone(image)
        logits = resize(self.head(low, high, dropout), size, self.align_corners)
        if not self.training:
            return logits
        if self.aux is None:
            return (logits,)
        return logits, resize(self.aux(middle, aux_dropout), size, self.align_corners)

    def forward_features(self, image: paddle.Tensor) -> paddle.Tensor:
        """Return the maps of the backbone: (N, 3, H, W) -> (N, features, H/16, W/16) at an output stride of 16."""
        return self.backbone(image)[2]

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifiers by some for other classes, with the framework's own initial values."""
        for head in (self.head, self.aux):
            if head is not None:
                head.classifier = nn.Conv2D(head.classifier.weight.shape[1], num_classes, 1)


class Backbone(nn.Layer):
    """Dilated ResNet: (N, 3, H, W) -> the outputs of layer1 (a quarter of the size), layer3 and layer4."""

    def __init__(self, arch: Arch):
        super().__init__()
        convs = [nn.Conv2D(i, o, k, s, k // 2, bias_attr=False) for i, o, k, s in arch.stem_convs]
        norms = [nn.BatchNorm2D(o) for _, o, _, _ in arch.stem_convs]
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

    def forward(self, x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        x = F.relu(self.bn1(self.conv1(x)))
        if self.is_deep:
            x = F.relu(self.bn2(self.conv2(x)))
            x = F.relu(self.bn3(self.conv3(x)))
        low = self.layer1(F.max_pool2d(x, 3, 2, 1))
        middle = self.layer3(self.layer2(low))
        return low, middle, self.layer4(middle)


class AvgPoolShortcut(nn.Sequential):
    """Shortcut that halves the size by average pooling over 2x2 pixels (ResNet-D, arXiv:1812.01187)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(conv1x1(inputs, outputs, 1), nn.BatchNorm2D(outputs))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return super().forward(F.avg_pool2d(x, 2, 2, ceil_mode=True))


class Head(nn.Layer):
    """Atrous spatial pyramid pooling on layer4, fused with layer1 -> logits (N, num_classes, H/4, W/4)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.is_mmseg = arch.variant == "mmseg"
        self.dropout_rate, self.align_corners = arch.dropout, arch.align_corners
        channels, width, bias = arch.backbone.features, arch.head_channels, not self.is_mmseg
        self.image_pool = ConvModule(channels, width, 1)
        self.aspp = nn.LayerList(
            [ConvModule(channels, width, 1, bias=bias)]
            + [SeparableConvModule(channels, width, rate, self.is_mmseg) for rate in arch.rates]
        )
        self.bottleneck = ConvModule(5 * width, width, 3 if self.is_mmseg else 1, bias=bias)
        self.low = ConvModule(channels // 8, arch.low_width, 1, bias=bias)
        self.fuse = nn.Sequential(
            SeparableConvModule(width + arch.low_width, width, 1, self.is_mmseg),
            SeparableConvModule(width, width, 1, self.is_mmseg),
        )
        self.classifier = nn.Conv2D(width, arch.outputs, 1)

    def forward(self, low: paddle.Tensor, high: paddle.Tensor, dropout: paddle.Tensor | None) -> paddle.Tensor:
        pooled = self.image_pool(high.mean((2, 3), keepdim=True)).expand([-1, -1, *high.shape[2:]])
        branches = [branch(high) for branch in self.aspp]
        branches = [pooled] + branches if self.is_mmseg else branches + [pooled]
        x = self.bottleneck(paddle.concat(branches, 1))
        if not self.is_mmseg:
            x = apply_dropout(x, dropout, self.dropout_rate)
        low = self.low(low)
        x = self.fuse(paddle.concat([resize(x, low.shape[2:], self.align_corners), low], 1))
        if self.is_mmseg:
            x = apply_dropout(x, dropout, self.dropout_rate)
        return self.classifier(x)


class AuxiliaryHead(nn.Layer):
    """Fully convolutional head on layer3 -> logits (N, num_classes, H/8, W/8)."""

    def __init__(self, arch: Arch):
        super().__init__()
        self.dropout_rate = arch.dropout
        self.project = ConvModule(arch.backbone.features // 2, arch.aux_width, 3)
        self.classifier = nn.Conv2D(arch.aux_width, arch.outputs, 1)

    def forward(self, middle: paddle.Tensor, dropout: paddle.Tensor | None) -> paddle.Tensor:
        return self.classifier(apply_dropout(self.project(middle), dropout, self.dropout_rate))


class ConvModule(nn.Layer):
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
        self.conv = nn.Conv2D(
            inputs, outputs, kernel, 1, kernel // 2 * dilation, dilation, groups, bias_attr=None if bias else False
        )
        self.bn = nn.BatchNorm2D(outputs)
        self.relu = relu

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.bn(self.conv(x))
        return F.relu(x) if self.relu else x


class SeparableConvModule(nn.Layer):
    """Depthwise separable convolution: a 3x3 depthwise, then a 1x1 pointwise convolution."""

    def __init__(self, inputs: int, outputs: int, dilation: int, is_mmseg: bool):
        super().__init__()
        self.depthwise = ConvModule(inputs, inputs, 3, dilation, groups=inputs, bias=not is_mmseg, relu=is_mmseg)
        self.pointwise = ConvModule(inputs, outputs, 1, bias=not is_mmseg)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.pointwise(self.depthwise(x))


def resize(x: paddle.Tensor, size: Sequence[int], align_corners: bool) -> paddle.Tensor:
    """Resize bilinearly: (N, C, h, w) -> (N, C, *size)."""
    return F.interpolate(x, tuple(size), mode="bilinear", align_corners=align_corners)


def apply_dropout(x: paddle.Tensor, mask: paddle.Tensor | None, rate: float) -> paddle.Tensor:
    """Apply dropout with a mask of channels (N, C) or of elements (N, C, h, w); None in evaluation: do nothing."""
    if mask is None:
        return x
    return x * (mask.unsqueeze([2, 3]) if mask.ndim == 2 else mask).astype(x.dtype) / (1 - rate)
