"""1x1 convolutions with a stride and few input channels on a CPU, as ones of stride 1 over every n-th pixel.

In channels-last format oneDNN, with which PyTorch computes them, writes past a buffer in the gradient of their weights
(uxlfoundation/oneDNN issue 6035, seen in PyTorch 2.13): the process crashes, or the gradient is wrong.
"""

import torch
from torch import nn
from torch.nn import functional as F

SAFE_CHANNELS = 16  # oneDNN's block of channels with AVX-512; with AVX2 it has 8


class StridedPointwiseConv2d(nn.Conv2d):
    """1x1 convolution with a stride and without padding."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = self.stride
        return F.conv2d(x[:, :, ::rows, ::columns], self.weight, self.bias)


def convert_convolutions(model: nn.Module) -> None:
    """Let convolutions that oneDNN may fail at compute as above. model: for a CPU, in channels-last format."""
    for module in model.modules():
        if type(module) is nn.Conv2d and _is_affected(module):
            module.__class__ = StridedPointwiseConv2d


def _is_affected(conv: nn.Conv2d) -> bool:
    is_pointwise = conv.kernel_size == (1, 1) and conv.padding == (0, 0) and conv.groups == 1
    return is_pointwise and conv.stride != (1, 1) and conv.in_channels < SAFE_CHANNELS
