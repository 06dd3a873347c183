"""bf16 convolutions on a CPU that has no bf16 instructions.

There PyTorch falls back to plain loops, ten times slower than fp32. A product of two bf16 numbers is exact in fp32, and
bf16 hardware sums in fp32 too; so rounding the operands, convolving in fp32 and rounding the result is the same
arithmetic at the speed of fp32.
"""
import torch
from torch import nn


class RoundedConv2d(nn.Conv2d):
    """A Conv2d that does its own rounding under autocast, and is an ordinary one elsewhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        bias = None if self.bias is None else self.bias.bfloat16().float()
        with torch.autocast("cpu", enabled=False):
            return self._conv_forward(x.bfloat16().float(), self.weight.bfloat16().float(), bias).bfloat16()


def use(net: nn.Module) -> None:
    """Let every 2-D convolution of a net round by itself."""
    for module in net.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = RoundedConv2d
