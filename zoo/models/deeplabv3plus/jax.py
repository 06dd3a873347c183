"""DeepLabV3+ in JAX, channels last, parallel to torch.py and the others; spec.py describes options and names."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from zoo.models.deeplabv3plus.spec import Arch, stages
from zoo.models.resnet.jax import BasicBlock, Bottleneck, conv, conv1x1, norm


class Model(nnx.Module):
    """DeepLabV3+: image (N, H, W, 3) float, dropout masks or None -> logits (N, H, W, num_classes).

    In training, a tuple of the logits of the head and, if there is one, of the auxiliary head.
    """

    def __init__(self, arch: Arch):
        self.backbone = Backbone(arch)
        self.head = Head(arch)
        self.aux = AuxiliaryHead(arch) if arch.has_auxiliary else None
        self.align_corners = arch.align_corners
        self.deterministic = False  # in training; set by nnx's train() and eval()

    def __call__(self, image: Array, dropout: Array | None = None, aux_dropout: Array | None = None):
        size = image.shape[1:3]
        low, middle, high = self.backbone(image)
        logits = resize(self.head(low, high, dropout), size, self.align_corners)
        if self.deterministic:
            return logits
        if self.aux is None:
            return (logits,)
        return logits, resize(self.aux(middle, aux_dropout), size, self.align_corners)

    def forward_features(self, image: Array) -> Array:
        """Return the maps of the backbone: (N, H, W, 3) -> (N, H/16, W/16, features) at an output stride of 16."""
        return self.backbone(image)[2]

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifiers by some for other classes, with the framework's own initial values."""
        for head in (self.head, self.aux):
            if head is not None:
                head.classifier = conv(head.classifier.in_features, num_classes, 1, 1, 0)


class Backbone(nnx.Module):
    """Dilated ResNet: (N, H, W, 3) -> the outputs of layer1 (a quarter of the size), layer3 and layer4."""

    def __init__(self, arch: Arch):
        convs = [conv(i, o, k, s, k // 2, use_bias=False) for i, o, k, s in arch.stem_convs]
        norms = [norm(o) for _, o, _, _ in arch.stem_convs]
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
            layers.append(nnx.Sequential(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers

    def __call__(self, x: Array) -> tuple[Array, Array, Array]:
        x = nnx.relu(self.bn1(self.conv1(x)))
        if self.is_deep:
            x = nnx.relu(self.bn2(self.conv2(x)))
            x = nnx.relu(self.bn3(self.conv3(x)))
        low = self.layer1(nnx.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1))))
        middle = self.layer3(self.layer2(low))
        return low, middle, self.layer4(middle)


class AvgPoolShortcut(nnx.Sequential):
    """Shortcut that halves the size by average pooling over 2x2 pixels (ResNet-D, arXiv:1812.01187)."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(conv1x1(inputs, outputs, 1), norm(outputs))

    def __call__(self, *inputs: Any, **_: Any) -> Any:
        return super().__call__(nnx.avg_pool(inputs[0], (2, 2), (2, 2), "SAME", count_include_pad=False))


class Head(nnx.Module):
    """Atrous spatial pyramid pooling on layer4, fused with layer1 -> logits (N, H/4, W/4, num_classes)."""

    def __init__(self, arch: Arch):
        self.is_mmseg = arch.variant == "mmseg"
        self.dropout_rate, self.align_corners = arch.dropout, arch.align_corners
        channels, width, bias = arch.backbone.features, arch.head_channels, not self.is_mmseg
        self.image_pool = ConvModule(channels, width, 1)
        self.aspp = nnx.Sequential(
            ConvModule(channels, width, 1, bias=bias),
            *(SeparableConvModule(channels, width, rate, self.is_mmseg) for rate in arch.rates),
        )
        self.bottleneck = ConvModule(5 * width, width, 3 if self.is_mmseg else 1, bias=bias)
        self.low = ConvModule(channels // 8, arch.low_width, 1, bias=bias)
        self.fuse = nnx.Sequential(
            SeparableConvModule(width + arch.low_width, width, 1, self.is_mmseg),
            SeparableConvModule(width, width, 1, self.is_mmseg),
        )
        self.classifier = conv(width, arch.outputs, 1, 1, 0)

    def __call__(self, low: Array, high: Array, dropout: Array | None) -> Array:
        pooled = self.image_pool(high.mean((1, 2), keepdims=True))
        pooled = jnp.broadcast_to(pooled, (*high.shape[:3], pooled.shape[-1]))
        branches = [branch(high) for branch in self.aspp.layers]
        branches = [pooled] + branches if self.is_mmseg else branches + [pooled]
        x = self.bottleneck(jnp.concatenate(branches, -1))
        if not self.is_mmseg:
            x = apply_dropout(x, dropout, self.dropout_rate)
        low = self.low(low)
        x = self.fuse(jnp.concatenate([resize(x, low.shape[1:3], self.align_corners), low], -1))
        if self.is_mmseg:
            x = apply_dropout(x, dropout, self.dropout_rate)
        return self.classifier(x)


class AuxiliaryHead(nnx.Module):
    """Fully convolutional head on layer3 -> logits (N, H/8, W/8, num_classes)."""

    def __init__(self, arch: Arch):
        self.dropout_rate = arch.dropout
        self.project = ConvModule(arch.backbone.features // 2, arch.aux_width, 3)
        self.classifier = conv(arch.aux_width, arch.outputs, 1, 1, 0)

    def __call__(self, middle: Array, dropout: Array | None) -> Array:
        return self.classifier(apply_dropout(self.project(middle), dropout, self.dropout_rate))


class ConvModule(nnx.Module):
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
        padding = kernel // 2 * dilation
        self.conv = conv(inputs, outputs, kernel, 1, padding, dilation, feature_group_count=groups, use_bias=bias)
        self.bn = norm(outputs)
        self.relu = relu

    def __call__(self, x: Array) -> Array:
        x = self.bn(self.conv(x))
        return nnx.relu(x) if self.relu else x


class SeparableConvModule(nnx.Module):
    """Depthwise separable convolution: a 3x3 depthwise, then a 1x1 pointwise convolution."""

    def __init__(self, inputs: int, outputs: int, dilation: int, is_mmseg: bool):
        self.depthwise = ConvModule(inputs, inputs, 3, dilation, groups=inputs, bias=not is_mmseg, relu=is_mmseg)
        self.pointwise = ConvModule(inputs, outputs, 1, bias=not is_mmseg)

    def __call__(self, x: Array) -> Array:
        return self.pointwise(self.depthwise(x))


def resize(x: Array, size: Sequence[int], align_corners: bool) -> Array:
    """Resize bilinearly: (N, h, w, C) -> (N, *size, C)."""
    shape = (x.shape[0], *size, x.shape[3])
    if not align_corners:
        return jax.image.resize(x, shape, "linear", antialias=False)
    ratios = [(new - 1) / max(old - 1, 1) for old, new in zip(x.shape[1:3], size)]
    scale = jnp.array(ratios, jnp.promote_types(x.dtype, jnp.float32))
    return jax.image.scale_and_translate(x, shape, (1, 2), scale, (1 - scale) / 2, "linear", antialias=False)


def apply_dropout(x: Array, mask: Array | None, rate: float) -> Array:
    """Apply dropout with a mask of channels (N, C) or of elements (N, C, h, w); None in evaluation: do nothing."""
    if mask is None:
        return x
    mask = mask[:, None, None] if mask.ndim == 2 else jnp.moveaxis(mask, 1, -1)
    return x * mask.astype(x.dtype) / (1 - rate)
