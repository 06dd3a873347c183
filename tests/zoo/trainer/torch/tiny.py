"""The small models of the common trainer cases in PyTorch; tests/zoo/trainer/tiny_reference.py has Tiny in numpy."""

import torch
from torch import nn

from tests.zoo.trainer.tiny_reference import CHANNELS, CLASSES, KEEP_RATE


class Tiny(nn.Module):
    """Convolution, batch normalization, ReLU, mean over pixels, dropout, classifier."""

    def __init__(self, arch):
        super().__init__()
        self.conv = nn.Conv2d(3, CHANNELS, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(CHANNELS)
        self.fc = nn.Linear(CHANNELS, CLASSES)

    def forward(self, image, dropout=None):
        x = torch.relu(self.bn(self.conv(image))).mean((2, 3))
        if dropout is not None:
            x = x * (dropout / KEEP_RATE)
        return self.fc(x)


class Linear(nn.Module):
    """One layer: (N, arch.inputs) -> (N, arch.embedding)."""

    def __init__(self, arch):
        super().__init__()
        self.fc = nn.Linear(arch.inputs, arch.embedding)

    def forward(self, x):
        return self.fc(x)


class Pixels(nn.Module):
    """Two classifiers of pixels: (N, arch.inputs, H, W) -> logits and auxiliary logits (N, arch.embedding, H, W)."""

    def __init__(self, arch):
        super().__init__()
        self.classes, self.conv = arch.embedding, nn.Conv2d(arch.inputs, 2 * arch.embedding, 1)

    def forward(self, x):
        logits = self.conv(x)
        return logits[:, : self.classes], logits[:, self.classes :]


class Identity(nn.Module):
    """Its input, plus a bias that starts as 0."""

    def __init__(self, arch):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + self.bias
