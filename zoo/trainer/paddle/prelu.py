"""PReLU with a slope per channel, computed on a CPU by operators that take several numbers at once.

Paddle's own kernels go from number to number and take three to five times as long.
"""

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import _C_ops, nn
from paddle.autograd import PyLayer
from paddle.autograd.py_layer import once_differentiable


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
