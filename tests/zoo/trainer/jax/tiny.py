"""The small models of the common trainer cases in JAX; tests/zoo/trainer/tiny_reference.py has Tiny in numpy."""

import jax.numpy as jnp
from flax import nnx

from tests.zoo.trainer.tiny_reference import CHANNELS, CLASSES, KEEP_RATE
from zoo.models.resnet.jax import conv, linear, norm


class Tiny(nnx.Module):
    """Convolution, batch normalization, ReLU, mean over pixels, dropout, classifier."""

    def __init__(self, arch):
        self.conv = conv(3, CHANNELS, 3, 1, 1, use_bias=False)
        self.bn = norm(CHANNELS)
        self.fc = linear(CHANNELS, CLASSES)

    def __call__(self, image, dropout=None):
        x = nnx.relu(self.bn(self.conv(image))).mean((1, 2))
        if dropout is not None:
            x = x * (dropout / KEEP_RATE)
        return self.fc(x)


class Linear(nnx.Module):
    """One layer: (N, arch.inputs) -> (N, arch.embedding)."""

    def __init__(self, arch):
        self.fc = linear(arch.inputs, arch.embedding)

    def __call__(self, x):
        return self.fc(x)


class Pixels(nnx.Module):
    """Two classifiers of pixels: (N, arch.inputs, H, W) -> logits and auxiliary logits (N, H, W, arch.embedding)."""

    def __init__(self, arch):
        self.classes, self.conv = arch.embedding, conv(arch.inputs, 2 * arch.embedding, 1, 1, 0)

    def __call__(self, x):
        logits = self.conv(jnp.moveaxis(x, 1, -1))
        return logits[..., : self.classes], logits[..., self.classes :]


class Identity(nnx.Module):
    """Its input, plus a bias that starts as 0."""

    def __init__(self, arch):
        self.bias = nnx.Param(jnp.zeros(1))

    def __call__(self, x):
        return x + self.bias[...]
