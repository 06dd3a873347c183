"""Nets in PyTorch that the other files have, too."""

import torch
from torch import nn


class Images(nn.Module):
    def __init__(self, epsilon=1e-5, approximate="none", momentum=0.1):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2, 1)
        self.bn = nn.BatchNorm2d(8, momentum=momentum)
        self.act = nn.GELU(approximate)
        self.norm = nn.LayerNorm(8, eps=epsilon)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.act(self.bn(self.conv(x)))
        return self.fc(self.drop(self.norm(x.mean((2, 3)))))


class Tokens(nn.Module):
    """What has weights in several layouts: attention, a depthwise and a transposed convolution, an LSTM."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.depthwise = nn.Conv1d(8, 8, 3, groups=8)
        self.up = nn.ConvTranspose1d(8, 6, 2, 2)
        self.lstm = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.up(self.depthwise(x.transpose(1, 2)))
        return self.lstm(x.transpose(1, 2))[0]


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 7), nn.Linear(7, 5)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def softmax():
    return nn.Softmax(-1)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
