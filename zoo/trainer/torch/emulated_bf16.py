"""bf16 convolutions on a CPU that has no bf16 instructions.

There PyTorch falls back to plain loops, ten times slower than fp32. A product of two bf16 numbers is exact in fp32, and
bf16 hardware sums in fp32 too; so rounding the operands, convolving in fp32 and rounding the result is the same
arithmetic at the speed of fp32.
"""

import torch
from torch import nn
from torch.nn import functional as F


class EmulatedBF16Conv2d(nn.Conv2d):
    """A Conv2d that does its own rounding under autocast, and is an ordinary one elsewhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        bias = None if self.bias is None else self.bias.bfloat16()
        geometry = self.stride, self.padding, self.dilation, self.groups
        return _Convolution.apply(x.bfloat16(), self.weight.bfloat16(), bias, geometry)


class _Convolution(torch.autograd.Function):
    """bf16 in, bf16 out, fp32 within. Written by hand so that what waits for the backward pass stays in bf16."""

    @staticmethod
    def forward(ctx, x, weight, bias, geometry):
        ctx.save_for_backward(x, weight)
        ctx.geometry = geometry
        with torch.autocast("cpu", enabled=False):
            return F.conv2d(x.float(), weight.float(), None if bias is None else bias.float(), *geometry).bfloat16()

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.geometry
        gradients = torch.ops.aten.convolution_backward(
            gradient.float(),
            x.float(),
            weight.float(),
            [len(weight)],
            stride,
            padding,
            dilation,
            False,
            (0, 0),
            groups,
            ctx.needs_input_grad[:3],
        )
        return (*(None if each is None else each.bfloat16() for each in gradients), None)


def convert_convolutions(model: nn.Module) -> None:
    """Let every 2-D convolution of a model that pads with zeros, by numbers, round by itself."""
    for module in model.modules():
        if type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str):
            module.__class__ = EmulatedBF16Conv2d
