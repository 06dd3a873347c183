"""Layers on a CPU that PyTorch computes slowly, or wrongly.

Dilated depthwise ones are a sum over the shifted images that a kernel's taps see: PyTorch has no fast kernel for them.
In channels-last format its own takes five to ten times as long. A tap is multiplied only where it sees pixels, and not
at all if the dilation is larger than the image.

1x1 convolutions with a stride and few input channels are ones of stride 1 over every n-th pixel: in channels-last
format oneDNN, with which PyTorch computes them, writes past a buffer in the gradient of their weights
(uxlfoundation/oneDNN issue 6035, seen in PyTorch 2.13): the process crashes, or the gradient is wrong.

Convolutions in bf16 are ten times slower than fp32 without bf16 instructions. A product of two bf16 numbers is exact in
fp32, and bf16 hardware accumulates in fp32 too. So rounding the operands, convolving in fp32 and rounding the result is
the same arithmetic at the speed of fp32. With them, oneDNN leaves memory as it was in the gradient of weights that see
padding alone, where images are smaller than the stride (seen in PyTorch 2.13): numbers of any size, or NaN.

The backward pass of PReLU branches at every element, which takes twice the time of five vectorized operations.

Batch normalization in channels-last format adds the pixels of a channel one after another: of 100,000 pixels, an fp32
variance is off by 1e-4, and the gradient of the weight by more. PyTorch's own kernel sums more channels of fewer pixels
each in the same time, and adding those up takes 0.1 ms, which small batches, off by 1e-5, are spared.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

NORM_PIXELS = 8192  # of a channel, from which on batch normalization adds partial sums
NORM_SUMS = 2048  # sums of batch normalization that a core keeps in its first cache
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


class AccurateBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d whose statistics of a large channels-last batch are sums of partial sums."""

    running_mean: torch.Tensor
    running_var: torch.Tensor
    momentum: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_small = x.numel() < NORM_PIXELS * x.shape[1]
        if not self.training or is_small or not x.is_contiguous(memory_format=torch.channels_last):
            return super().forward(x)
        statistics = self.running_mean, self.running_var
        return _BatchNorm.apply(x, self.weight, self.bias, *statistics, self.eps, self.momentum)


class _BatchNorm(torch.autograd.Function):
    """(x in channels-last format, weight, bias, running mean, running variance, eps, momentum) -> y.

    The running statistics are moved.
    """

    @staticmethod
    def forward(ctx: Any, x, weight, bias, running_mean, running_var, eps: float, momentum: float):
        means, variances = _partial_statistics(x)
        mean = means.mean(0)
        variance = (means - mean).square_().add_(variances).mean(0)
        count = x.numel() // x.shape[1]
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(variance * (count / (count - 1)), momentum)
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(variance + eps))
        ctx.eps = eps
        return torch.native_batch_norm(x, weight, bias, mean, variance, False, 0, eps)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: torch.Tensor):
        x, weight, *statistics = ctx.saved_tensors
        grads = torch.ops.aten.native_batch_norm_backward(
            grad_y, x, weight, None, None, *statistics, True, ctx.eps, ctx.needs_input_grad[:3]
        )
        return *grads, *4 * (None,)


def _partial_statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return means and biased variances of every n-th pixel of each channel: (n, C) each."""
    channels = x.shape[1]
    pixels = x.numel() // channels
    parts = next(n for n in range(max(NORM_SUMS // channels, 1), 0, -1) if pixels % n == 0)
    width = parts * channels
    view = x.as_strided((1, width, pixels // parts, 1), (x.numel(), 1, width, width))  # channels last, too
    means, variances = torch.batch_norm_update_stats(view, None, None, 0)
    return means.view(parts, channels), variances.view(parts, channels)


def convert_batchnorm(model: nn.Module) -> None:
    """Let the 2-D batch normalizations of a model, for a CPU, compute as AccurateBatchNorm2d."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = AccurateBatchNorm2d


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


class TinyImageConv2d(EmulatedBF16Conv2d):
    """EmulatedBF16Conv2d for images that are smaller than the stride, Conv2d for others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_tiny = any(size < stride for size, stride in zip(x.shape[2:], self.stride))
        return super().forward(x) if is_tiny else nn.Conv2d.forward(self, x)


def emulate_bf16(model: nn.Module, has_bf16: bool) -> None:
    """Emulate bf16 in every Conv2d of a model that pads with zeros and a given number of them.

    Args:
        has_bf16: the processor has instructions for it, which fail for tiny images alone.
    """
    for module in model.modules():
        if type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str):
            if not has_bf16:
                module.__class__ = EmulatedBF16Conv2d
            elif max(module.stride) > 1:
                module.__class__ = TinyImageConv2d
