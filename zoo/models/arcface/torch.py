"""IResNet in PyTorch, parallel to paddle.py and mindspore.py; spec.py describes options and tensor names."""

import torch
from torch import nn

from zoo.models.arcface.spec import Arch, prelu_slopes, stages
from zoo.models.resnet.torch import conv1x1, conv3x3


class Block(nn.Module):
    """Pre-activation residual block: two 3x3 convolutions, the second with the stride; no activation after the sum."""

    def __init__(self, arch: Arch, inputs: int, width: int, is_first: bool):
        super().__init__()
        stride = 2 if is_first else 1
        self.bn1 = norm(arch, inputs)
        self.conv1 = conv3x3(inputs, width, 1, 1)
        self.bn2 = norm(arch, width)
        self.prelu = nn.PReLU(prelu_slopes(arch, width))
        self.conv2 = conv3x3(width, width, stride, 1)
        self.bn3 = norm(arch, width)
        self.downsample: nn.Module = nn.Identity()
        if is_first:
            self.downsample = nn.Sequential(conv1x1(inputs, width, stride), norm(arch, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        residual = self.prelu(self.bn2(self.conv1(self.bn1(x))))
        return self.bn3(self.conv2(residual)) + self.downsample(x)


class Model(nn.Module):
    """IResNet: image (N, 3, H, W) float, dropout mask (N, features) or None -> embeddings (N, embedding).

    The embeddings are not normalized.
    """

    def __init__(self, arch: Arch):
        super().__init__()
        self.dropout_rate = arch.dropout_rate
        self.conv1 = conv3x3(3, arch.width, 1, 1)
        self.bn1 = norm(arch, arch.width)
        self.prelu = nn.PReLU(prelu_slopes(arch, arch.width))
        layers, inputs = [], arch.width
        for blocks, width in stages(arch):
            layer = []
            for i in range(blocks):
                layer.append(Block(arch, inputs, width, i == 0))
                inputs = width
            layers.append(nn.Sequential(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.bn2 = norm(arch, inputs)
        self.fc = nn.Linear(arch.features, arch.embedding)
        self.features = norm(arch, arch.embedding)

    def forward_features(self, image: torch.Tensor) -> torch.Tensor:
        """Return the maps that fc gets flattened: (N, 3, H, W) -> (N, 8 * width, H/16, W/16)."""
        x = self.prelu(self.bn1(self.conv1(image)))
        return self.bn2(self.layer4(self.layer3(self.layer2(self.layer1(x)))))

    def forward(self, image: torch.Tensor, dropout: torch.Tensor | None = None) -> torch.Tensor:
        x = self.forward_features(image).flatten(1)
        if dropout is not None:
            x = x * (dropout / (1 - self.dropout_rate))
        return self.features(self.fc(x)[:, :, None, None]).flatten(1)


def norm(arch: Arch, channels: int) -> nn.BatchNorm2d:
    """Return a batch normalization.

    That of the embeddings is 2-D as well, over maps of one pixel, because trainers handle 2-D ones alone.
    """
    return nn.BatchNorm2d(channels, arch.epsilon)
