"""The small models of the common trainer cases in MindSpore; tests/zoo/trainer/tiny_reference.py has Tiny in numpy.

MindSpore compiles only code that stands in a file.
"""

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from tests.zoo.trainer.tiny_reference import CHANNELS, CLASSES, KEEP_RATE


class Tiny(nn.Cell):
    """Convolution, batch normalization, ReLU, mean over pixels, dropout, classifier."""

    def __init__(self, arch):
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 3, pad_mode="pad", padding=1, has_bias=False)
        self.bn = nn.BatchNorm2d(CHANNELS)
        self.fc = nn.Dense(CHANNELS, CLASSES)

    def construct(self, image, dropout=None):
        x = ops.relu(self.bn(self.conv(image))).mean((2, 3))
        if dropout is not None:
            x = x * (dropout.astype(mindspore.float32) / KEEP_RATE)
        return self.fc(x)


class Linear(nn.Cell):
    """One layer: (N, arch.inputs) -> (N, arch.embedding)."""

    def __init__(self, arch):
        super().__init__()
        self.fc = nn.Dense(arch.inputs, arch.embedding)

    def construct(self, x):
        return self.fc(x)


class Pixels(nn.Cell):
    """Two classifiers of pixels: (N, arch.inputs, H, W) -> logits and auxiliary logits (N, arch.embedding, H, W)."""

    def __init__(self, arch):
        super().__init__()
        self.classes, self.conv = arch.embedding, nn.Conv2d(arch.inputs, 2 * arch.embedding, 1, has_bias=True)

    def construct(self, x):
        logits = self.conv(x)
        return logits[:, : self.classes], logits[:, self.classes :]


class Identity(nn.Cell):
    """Its input, plus a bias that starts as 0."""

    def __init__(self, arch):
        super().__init__()
        self.bias = Parameter(Tensor(np.zeros(1, np.float32)), "bias")

    def construct(self, x):
        return x + self.bias


class PrecisionProbe(nn.Cell):
    """Its logits tell what is computed in fp16: 1 the convolution, 2 the normalization, 4 the softmax."""

    def __init__(self, arch):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1, has_bias=False), nn.BatchNorm2d(4)

    def construct(self, image):
        convolved = self.conv(image)
        normalized = self.bn(convolved)
        code = 0.0
        for bit, tensor in ((1, convolved), (2, normalized), (4, ops.softmax(normalized, 1))):
            code += bit * float(tensor.dtype == mindspore.float16)
        return normalized.mean((2, 3))[:, :2].astype(mindspore.float32) * 0 + code


class Tower(nn.Cell):
    """A layer of each type that must keep 32 bits, and one that need not."""

    def __init__(self, arch):
        super().__init__()
        self.first = nn.Dense(arch.inputs, arch.embedding)
        self.fc = nn.Dense(arch.embedding, arch.embedding)
        self.features = nn.BatchNorm2d(arch.embedding)

    def construct(self, x):
        return self.features(self.fc(self.first(x))[:, :, None, None]).flatten(start_dim=1)


class Double(nn.Cell):
    """All-reduce of two ranks with equal tensors."""

    def construct(self, x):
        return x + x
