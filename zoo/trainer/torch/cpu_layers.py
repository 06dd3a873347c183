"""Layers on a CPU that PyTorch computes slowly, or wrongly.

Dilated depthwise ones are a sum over the shifted images that a kernel's taps see: PyTorch has no fast kernel for them.
In channels-last format its own takes five to ten times as long. A tap is multiplied only where it sees pixels, and not
at all if the dilation is larger than the image.

1x1 convolutions with a stride and few input channels are ones of stride 1 over every n-th pixel: in channels-last
format oneDNN, with which PyTorch computes them, writes past a buffer in the gradient of their weights
(uxlfoundation/oneDNN issue 6035, seen in PyTorch 2.13): the process crashes, or the gradient is wrong.

Convolutions in bf16 are ten times slower than fp32 without bf16 instructions. A product of two bf16 numbers is exact in
fp32, and bf16 hardware accumulates in fp32 too. So rounding the operands, convolving in fp32 and rounding the result is
the same arithmetic at the speed of fp32.

The backward pass of PReLU branches at every element, which takes twice the time of five vectorized operations.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

SAFE_CHANNELS = 16  # oneDNN's block of channels with AVX-512; with AVX2 it has 8
Region = tuple[slice, slice]  # rows and columns


class DilatedDepthwiseConv2d(nn.Conv2d):
    """Depthwise convolution with dilation, stride 1 and a padding that keeps the size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = _DilatedDepthwise.apply(x, self.weight, self.dilation)
        return y if self.bias is None else y + self.bias[:, None, None]


class _DilatedDepthwise(torch.autograd.Function):
    """(x (N, C, H, W), weight (C, 1, h, w), dilation) -> (N, C, H, W)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, dilation: tuple[int, int]) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.dilation = dilation
        y = torch.zeros_like(x)
        for tap, output, seen in _taps(weight, x, dilation):
            y[:, :, *output].addcmul_(x[:, :, *seen], weight[:, :, *tap, None])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: torch.Tensor):
        x, weight = ctx.saved_tensors
        grad_x = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for tap, output, seen in _taps(weight, x, ctx.dilation):
            grad = grad_y[:, :, *output]
            if grad_x is not None:
                grad_x[:, :, *seen].addcmul_(grad, weight[:, :, *tap, None])
            if grad_weight is not None:
                grad_weight[:, 0, *tap] = (grad * x[:, :, *seen]).sum((0, 2, 3))
        return grad_x, grad_weight, None


def _taps(
    weight: torch.Tensor, x: torch.Tensor, dilation: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], Region, Region]]:
    """Yield each tap of a kernel with the pixels of the output that it adds to, and those that it sees for it."""
    for row, (rows, rows_seen) in _shifts(weight.shape[2], dilation[0], x.shape[2]):
        for column, (columns, columns_seen) in _shifts(weight.shape[3], dilation[1], x.shape[3]):
            yield (row, column), (rows, columns), (rows_seen, columns_seen)


def _shifts(taps: int, dilation: int, size: int) -> Iterator[tuple[int, tuple[slice, slice]]]:
    """Yield along an axis each tap that sees pixels, with the range of the output and the one that it sees."""
    for tap in range(taps):
        shift = (tap - taps // 2) * dilation
        if abs(shift) < size:
            yield tap, (slice(max(0, -shift), size - max(0, shift)), slice(max(0, shift), size + min(0, shift)))


def convert_dilated(model: nn.Module) -> None:
    """Let the dilated depthwise convolutions of a model, for a CPU, compute as DilatedDepthwiseConv2d."""
    for module in model.modules():
        if type(module) is nn.Conv2d and _is_convertible(module):
            module.__class__ = DilatedDepthwiseConv2d


def _is_convertible(conv: nn.Conv2d) -> bool:
    same = tuple(dilation * (size // 2) for dilation, size in zip(conv.dilation, conv.kernel_size))
    is_odd = all(size % 2 for size in conv.kernel_size)
    is_depthwise = conv.groups == conv.in_channels == conv.out_channels and conv.groups > 1
    keeps_size = is_odd and conv.padding == same and conv.stride == (1, 1) and conv.padding_mode == "zeros"
    return is_depthwise and keeps_size and max(conv.dilation) > 1


class StridedPointwiseConv2d(nn.Conv2d):
    """1x1 convolution with a stride and without padding."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = self.stride
        return F.conv2d(x[:, :, ::rows, ::columns], self.weight, self.bias)


def convert_strided(model: nn.Module) -> None:
    """Let convolutions that oneDNN may fail at compute as StridedPointwiseConv2d; in channels-last format, on a CPU."""
    for module in model.modules():
        if type(module) is nn.Conv2d and _is_affected(module):
            module.__class__ = StridedPointwiseConv2d


def _is_affected(conv: nn.Conv2d) -> bool:
    is_pointwise = conv.kernel_size == (1, 1) and conv.padding == (0, 0) and conv.groups == 1
    return is_pointwise and conv.stride != (1, 1) and conv.in_channels < SAFE_CHANNELS


class VectorizedPReLU(nn.PReLU):
    """PReLU with a slope per channel of images."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _PReLU.apply(x, self.weight)


class _PReLU(torch.autograd.Function):
    """(x (N, C, H, W), slopes (C,)) -> (N, C, H, W), with the bits of torch.nn.PReLU and of its gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, slopes)
        return F.prelu(x, slopes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: torch.Tensor):
        x, slopes = ctx.saved_tensors
        grad_x = torch.ops.aten.threshold_backward(grad_y, x, 0)  # 0 where x is not positive
        others = grad_y - grad_x
        grad_x.addcmul_(others, slopes[:, None, None])
        return grad_x, others.mul_(x).sum((0, 2, 3))


def convert_prelu(model: nn.Module) -> None:
    """Let the PReLUs of a model, for a CPU, compute as VectorizedPReLU, if they have a slope per channel."""
    for module in model.modules():
        if type(module) is nn.PReLU and module.num_parameters > 1:
            module.__class__ = VectorizedPReLU


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
