"""ResNet v1.5 in JAX, channels last, parallel to torch.py and the others; spec.py describes options and names."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import Array

from zoo.models.resnet.spec import Arch, stages


class BasicBlock(nnx.Module):
    """Residual block of ResNet-18 and -34: two 3x3 convolutions, the first with stride and dilation."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, dilation: int, same: bool = False, eps: float = 1e-5):
        self.conv1 = conv3x3(inputs, width, stride, dilation, same)
        self.bn1 = norm(width, eps)
        self.conv2 = conv3x3(width, width, 1, 1)
        self.bn2 = norm(width, eps)
        self.downsample = shortcut(inputs, width, stride, eps)

    def residual(self, x: Array) -> Array:
        """Return the residual branch, to which the shortcut is added."""
        x = nnx.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))

    def __call__(self, x: Array, residual_input: Array | None = None) -> Array:
        """Return the sum of both branches; `residual_input`: what the residual branch gets instead of x."""
        residual = self.residual(x if residual_input is None else residual_input)
        return nnx.relu(residual + self.downsample(x))


class Bottleneck(nnx.Module):
    """Residual block of deeper ResNets: 1x1 to `width`, 3x3 with stride and dilation (v1.5), 1x1 to 4 * `width`."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, dilation: int, same: bool = False, eps: float = 1e-5):
        self.conv1 = conv1x1(inputs, width, 1)
        self.bn1 = norm(width, eps)
        self.conv2 = conv3x3(width, width, stride, dilation, same)
        self.bn2 = norm(width, eps)
        self.conv3 = conv1x1(width, width * 4, 1)
        self.bn3 = norm(width * 4, eps)
        self.downsample = shortcut(inputs, width * 4, stride, eps)

    def residual(self, x: Array) -> Array:
        """Return the residual branch, to which the shortcut is added."""
        x = nnx.relu(self.bn1(self.conv1(x)))
        x = nnx.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))

    def __call__(self, x: Array, residual_input: Array | None = None) -> Array:
        """Return the sum of both branches; `residual_input`: what the residual branch gets instead of x."""
        residual = self.residual(x if residual_input is None else residual_input)
        return nnx.relu(residual + self.downsample(x))


class Model(nnx.Module):
    """ResNet: image (N, H, W, 3) float -> logits (N, num_classes)."""

    def __init__(self, arch: Arch):
        block = Bottleneck if arch.expansion == 4 else BasicBlock
        self.pool_padding = "SAME" if arch.same_pool else ((1, 1), (1, 1))
        self.conv1 = conv7x7(3, arch.width, arch.same_convs)
        self.bn1 = norm(arch.width, arch.bn_eps)
        layers, inputs = [], arch.width
        for stage in stages(arch):
            layer = []
            for i in range(stage.blocks):
                stride, dilation = (stage.stride, stage.first_dilation) if i == 0 else (1, stage.dilation)
                layer.append(block(inputs, stage.width, stride, dilation, arch.same_convs, arch.bn_eps))
                inputs = stage.width * block.expansion
            layers.append(nnx.Sequential(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.fc = linear(arch.features, arch.outputs)

    def stem(self, x: Array) -> Array:
        """Return the input of layer1: (N, H, W, 3) -> (N, H/4, W/4, width)."""
        x = nnx.relu(self.bn1(self.conv1(x)))
        return nnx.max_pool(x, (3, 3), (2, 2), self.pool_padding)

    def forward_features(self, image: Array) -> Array:
        """Return the maps whose mean the classifier gets: (N, H, W, 3) -> (N, H/32, W/32, features)."""
        x = self.stem(image)
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))

    def __call__(self, image: Array) -> Array:
        return self.fc(jnp.mean(self.forward_features(image), (1, 2)))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by one for other classes, with the framework's own initial values."""
        self.fc = linear(self.fc.in_features, num_classes)


def conv(inputs: int, outputs: int, kernel: int, stride: int, padding: Any, dilation: int = 1, **options: Any):
    """Return a square convolution; options: of nnx.Conv."""
    window, strides, dilations = (kernel,) * 2, (stride,) * 2, (dilation,) * 2
    return nnx.Conv(
        inputs, outputs, window, strides, padding=padding, kernel_dilation=dilations, rngs=nnx.Rngs(0), **options
    )


def conv1x1(inputs: int, outputs: int, stride: int) -> nnx.Conv:
    """Return a 1x1 convolution without bias."""
    return conv(inputs, outputs, 1, stride, 0, use_bias=False)


def conv3x3(inputs: int, outputs: int, stride: int, dilation: int, same: bool = False) -> nnx.Conv:
    """Return a 3x3 convolution without bias; with stride 1 it keeps the size, and both paddings are equal."""
    padding = "SAME" if same and stride > 1 else dilation
    return conv(inputs, outputs, 3, stride, padding, dilation, use_bias=False)


def conv7x7(inputs: int, outputs: int, same: bool) -> nnx.Conv:
    """Return a 7x7 convolution of stride 2 without bias."""
    return conv(inputs, outputs, 7, 2, "SAME" if same else 3, use_bias=False)


def norm(channels: int, eps: float = 1e-5) -> nnx.BatchNorm:
    return nnx.BatchNorm(channels, momentum=0.9, epsilon=eps, rngs=nnx.Rngs(0))


def linear(inputs: int, outputs: int) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, rngs=nnx.Rngs(0))


def shortcut(inputs: int, outputs: int, stride: int, eps: float) -> Any:
    """Return the shortcut: the identity, or a strided 1x1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nnx.identity
    return nnx.Sequential(conv1x1(inputs, outputs, stride), norm(outputs, eps))
