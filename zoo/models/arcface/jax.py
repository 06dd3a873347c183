"""IResNet in JAX, channels last, parallel to torch.py and the others; spec.py describes options and names."""

from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import Array

from zoo.models.arcface.spec import Arch, prelu_slopes, stages
from zoo.models.resnet.jax import conv1x1, conv3x3, linear
from zoo.models.resnet.jax import norm as batch_norm


class PReLU(nnx.Module):
    """PReLU with a slope for each channel, or one for all; that of nnx has one alone."""

    def __init__(self, slopes: int):
        self.weight = nnx.Param(jnp.full(slopes, 0.25))

    def __call__(self, x: Array) -> Array:
        return jnp.where(x > 0, x, self.weight[...].astype(x.dtype) * x)


class Block(nnx.Module):
    """Pre-activation residual block: two 3x3 convolutions, the second with the stride; no activation after the sum."""

    def __init__(self, arch: Arch, inputs: int, width: int, is_first: bool):
        stride = 2 if is_first else 1
        self.bn1 = norm(arch, inputs)
        self.conv1 = conv3x3(inputs, width, 1, 1)
        self.bn2 = norm(arch, width)
        self.prelu = PReLU(prelu_slopes(arch, width))
        self.conv2 = conv3x3(width, width, stride, 1)
        self.bn3 = norm(arch, width)
        downsample: Any = nnx.identity
        if is_first:
            downsample = nnx.Sequential(conv1x1(inputs, width, stride), norm(arch, width))
        self.downsample = downsample

    def __call__(self, x: Array) -> Array:
        residual = self.prelu(self.bn2(self.conv1(self.bn1(x))))
        return self.bn3(self.conv2(residual)) + self.downsample(x)


class Model(nnx.Module):
    """IResNet: image (N, H, W, 3) float, dropout mask (N, features) or None -> embeddings (N, embedding).

    The embeddings are not normalized.
    """

    def __init__(self, arch: Arch):
        self.dropout_rate = arch.dropout_rate
        self.conv1 = conv3x3(3, arch.width, 1, 1)
        self.bn1 = norm(arch, arch.width)
        self.prelu = PReLU(prelu_slopes(arch, arch.width))
        layers, inputs = [], arch.width
        for blocks, width in stages(arch):
            layer = []
            for i in range(blocks):
                layer.append(Block(arch, inputs, width, i == 0))
                inputs = width
            layers.append(nnx.Sequential(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.bn2 = norm(arch, inputs)
        self.fc = linear(arch.features, arch.embedding)
        self.features = norm(arch, arch.embedding)

    def forward_features(self, image: Array) -> Array:
        """Return the maps that fc gets flattened: (N, H, W, 3) -> (N, H/16, W/16, 8 * width)."""
        x = self.prelu(self.bn1(self.conv1(image)))
        return self.bn2(self.layer4(self.layer3(self.layer2(self.layer1(x)))))

    def __call__(self, image: Array, dropout: Array | None = None) -> Array:
        maps = self.forward_features(image)
        x = jnp.moveaxis(maps, -1, 1).reshape(maps.shape[0], -1)  # channel by channel, as fc has them
        if dropout is not None:
            x = x * (dropout / (1 - self.dropout_rate))
        return self.features(self.fc(x)[:, None, None])[:, 0, 0]  # maps of one pixel, as the others have them


def norm(arch: Arch, channels: int) -> nnx.BatchNorm:
    return batch_norm(channels, arch.epsilon)
