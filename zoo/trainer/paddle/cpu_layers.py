"""Layers on a CPU that compute faster than Paddle's own.

Convolutions of small maps are one matrix product for many samples. Paddle multiplies matrices sample by sample, and
reads and writes a large weight and its gradient for each: where a map has few pixels, that takes up to twice as long.

PReLU with a slope per channel is computed by operators that take several numbers at once. Paddle's own kernels go from
number to number and take three to five times as long.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import paddle
import paddle.nn.functional as F
from paddle import _C_ops, nn
from paddle.autograd import PyLayer
from paddle.autograd.py_layer import once_differentiable

MAX_PIXELS = 64  # of a map that comes out of a convolution; with 14 x 14, Paddle's own is as fast or faster
MIN_WEIGHTS = 1 << 18  # that a core keeps in its cache no longer
COLUMNS = 4096  # pixels of all samples in a product, to limit the memory of the other operand


class Window(NamedTuple):
    """Kernel size, stride, padding and dilation, each of both axes."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]

    @property
    def is_pixel(self) -> bool:
        return [*self.kernel, *self.stride, *self.padding] == [1, 1, 1, 1, 0, 0]

    def map_size(self, size: list[int]) -> list[int]:
        """Return the size of the map that comes out for the size of the one that goes in."""
        return [
            (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for length, kernel, stride, padding, dilation in zip(size, *self)
        ]


class CpuConv2D(nn.Conv2D):
    """Convolution that multiplies the matrices of many samples at once where that is faster."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        window = Window(self._kernel_size, self._stride, self._updated_padding, self._dilation)
        height, width = window.map_size(x.shape[2:])
        is_row = min(x.shape[2:]) == 1  # F.fold of Paddle 2.6 refuses it
        if height * width > MAX_PIXELS or self.weight.size < MIN_WEIGHTS or (is_row and not window.is_pixel):
            return super().forward(x)
        return _Convolution.apply(x, self.weight, window)


class _Convolution(PyLayer):
    """(x, weight, window) -> the convolution: (N, C, H, W), (O, C, k, k) -> (N, O, h, w)."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, weight: paddle.Tensor, window: Window) -> paddle.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.window, ctx.needs_gradient = window, [not tensor.stop_gradient for tensor in (x, weight)]
        size = window.map_size(x.shape[2:])
        maps = []
        for part in _parts(x, size):
            products = paddle.matmul(weight.flatten(1), _columns(part, window))  # (O, n * h * w)
            maps.append(_samples(products, len(part), size))
        return _joined(maps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: paddle.Tensor):  # type: ignore[override]
        x, weight = ctx.saved_tensor()
        (needs_x, needs_weight), size = ctx.needs_gradient, grad.shape[2:]
        grad_parts: list[paddle.Tensor] = []
        grad_weight: Any = 0
        for part, grad_part in zip(_parts(x, size), _parts(grad, size)):
            products = _pixels(grad_part)  # (O, n * h * w)
            if needs_weight:
                grad_weight = grad_weight + paddle.matmul(products, _columns(part, ctx.window), transpose_y=True)
            if needs_x:
                columns = paddle.matmul(weight.flatten(1), products, transpose_x=True)
                grad_parts.append(_sum_columns(columns, part.shape, ctx.window))
        return _joined(grad_parts) if needs_x else None, grad_weight.reshape(weight.shape) if needs_weight else None


def convert_convolutions(model: nn.Layer) -> None:
    """Make the convolutions of a model compute as CpuConv2D, except for those with groups, a bias or other padding."""
    for layer in model.sublayers():
        if type(layer) is nn.Conv2D and _is_plain(layer):
            layer.__class__ = CpuConv2D


def _is_plain(layer: nn.Conv2D) -> bool:
    has_zeros = layer._padding_mode == "zeros" and layer._padding_algorithm == "EXPLICIT"  # not "SAME"
    is_symmetric = len(layer._updated_padding) == 2
    return has_zeros and is_symmetric and layer._groups == 1 and layer.bias is None and layer._data_format == "NCHW"


def _parts(x: paddle.Tensor, size: list[int]) -> Iterator[paddle.Tensor]:
    """Yield the samples of x, so many at a time that their maps of a size have COLUMNS pixels at most."""
    samples = max(1, COLUMNS // (size[0] * size[1]))
    if len(x) <= samples:
        yield x
        return
    for first in range(0, len(x), samples):
        yield x[first : first + samples]


def _joined(parts: list[paddle.Tensor]) -> paddle.Tensor:
    return parts[0] if len(parts) == 1 else paddle.concat(parts)


def _pixels(x: paddle.Tensor) -> paddle.Tensor:
    """Return the pixels of all samples: (n, C, h, w) -> (C, n * h * w)."""
    return x.transpose((1, 0, 2, 3)).flatten(1)


def _samples(pixels: paddle.Tensor, count: int, size: list[int]) -> paddle.Tensor:
    """Return the samples of pixels: (C, n * h * w) -> (n, C, h, w)."""
    return pixels.reshape([len(pixels), count, *size]).transpose((1, 0, 2, 3))


def _columns(x: paddle.Tensor, window: Window) -> paddle.Tensor:
    """Return what the kernel sees at each pixel: (n, C, H, W) -> (C * k * k, n * h * w)."""
    if window.is_pixel:
        return _pixels(x)
    return F.unfold(x, *window).transpose((1, 0, 2)).flatten(1)


def _sum_columns(columns: paddle.Tensor, shape: list[int], window: Window) -> paddle.Tensor:
    """Return the sum over the kernels of what each has for a pixel: (C * k * k, n * h * w) -> shape, (n, C, H, W)."""
    if window.is_pixel:
        return _samples(columns, shape[0], shape[2:])
    return F.fold(columns.reshape([len(columns), shape[0], -1]).transpose((1, 0, 2)), shape[2:], *window)


class CpuPReLU(nn.PReLU):
    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return _PReLUFunction.apply(x, self._weight)


class _PReLUFunction(PyLayer):
    """(x, slopes) -> x where x > 0, slope * x elsewhere: (N, C, H, W), (C,) -> (N, C, H, W)."""

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, slopes: paddle.Tensor) -> paddle.Tensor:
        ctx.save_for_backward(x, slopes)
        ctx.needs_gradient = [not tensor.stop_gradient for tensor in (x, slopes)]
        return (_negative(x) * _by_channel(slopes)).add_(F.relu(x))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: paddle.Tensor):  # type: ignore[override]
        x, slopes = ctx.saved_tensor()
        needs_x, needs_slopes = ctx.needs_gradient
        grad_x = grad_slopes = None
        if needs_x:
            of_positive = _C_ops.relu_grad(x, grad)  # grad where x > 0
            grad_x = ((grad - of_positive) * _by_channel(slopes)).add_(of_positive)
        if needs_slopes:
            grad_slopes = (_negative(x) * grad).flatten(2).sum(2).sum(0)  # twice as fast as over all axes at once
        return grad_x, grad_slopes


def convert_prelus(model: nn.Layer) -> None:
    """Make the PReLUs of a model that have a slope per channel compute as CpuPReLU; their inputs are (N, C, H, W)."""
    if not hasattr(_C_ops, "relu_grad"):  # Paddle 2.6, whose minimum loses NaN, too
        return
    for layer in model.sublayers():
        if type(layer) is nn.PReLU and layer._num_parameters > 1 and layer._data_format == "NCHW":
            layer.__class__ = CpuPReLU


def _negative(x: paddle.Tensor) -> paddle.Tensor:
    return paddle.minimum(x, paddle.zeros([1], x.dtype))  # unlike clip and relu, it keeps -inf and NaN


def _by_channel(slopes: paddle.Tensor) -> paddle.Tensor:
    return slopes.reshape([-1, 1, 1])
