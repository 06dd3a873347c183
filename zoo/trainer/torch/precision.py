"""Types of PyTorch by the precision of a mode, and bf16 convolutions on a CPU without bf16 instructions.

There PyTorch's own are ten times slower than fp32. A product of two bf16 numbers is exact in fp32, and bf16 hardware
accumulates in fp32 too. So rounding the operands, convolving in fp32 and rounding the result is the same arithmetic at
the speed of fp32.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from zoo.trainer.plan import Mode

MIXED_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def mixed_dtype(mode: Mode) -> torch.dtype | None:
    """Return the 16-bit type of a mode; None if it has none."""
    return MIXED_DTYPES.get(mode.compute)


def wide_dtype(mode: Mode) -> torch.dtype:
    """Return the type of parameters, momentum and losses."""
    return torch.float64 if mode.is_fp64 else torch.float32


class EmulatedBF16Conv2d(nn.Conv2d):
    """Conv2d that emulates bf16 under autocast, and computes as usual elsewhere."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        bias = None if self.bias is None else self.bias.bfloat16()
        geometry = self.stride, self.padding, self.dilation, self.groups
        return _EmulatedConv.apply(x.bfloat16(), self.weight.bfloat16(), bias, geometry)


class _EmulatedConv(torch.autograd.Function):
    """Convolution with bf16 operands and result, in fp32; saves bf16 tensors for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x, weight, bias, geometry):
        ctx.save_for_backward(x, weight)
        ctx.geometry = geometry
        with torch.autocast("cpu", enabled=False):
            return F.conv2d(x.float(), weight.float(), None if bias is None else bias.float(), *geometry).bfloat16()

    @staticmethod
    def backward(ctx: Any, grad_output):
        x, weight = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.geometry
        grads = torch.ops.aten.convolution_backward(
            grad_output.float(),
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
        return (*(None if grad is None else grad.bfloat16() for grad in grads), None)


def emulate_bf16(model: nn.Module) -> None:
    """Emulate bf16 in every Conv2d of a model that pads with zeros and a given number of them."""
    for module in model.modules():
        if type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str):
            module.__class__ = EmulatedBF16Conv2d
