"""Batch normalization whose running variance agrees with PyTorch and MindSpore.

All three frameworks normalize with the biased variance of a batch. PyTorch and MindSpore update the running variance
with the unbiased one; Paddle does so only in cuDNN, and on CPUs uses the biased one.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import _C_ops, nn
from paddle.autograd import PyLayer
from paddle.autograd.py_layer import once_differentiable

# Every training forward pass warns of it.
warnings.filterwarnings("ignore", "When training, we now always track global mean and variance")


def updates_biased_variance(place) -> bool:
    """Return whether the running variance is updated with the biased variance on a device."""
    x = paddle.to_tensor([[[[0.0, 2.0]]]], place=place)  # biased variance 1, unbiased 2
    mean, variance, weight, bias = (paddle.to_tensor([value], place=place) for value in (0.0, 0.0, 1.0, 0.0))
    F.batch_norm(x, mean, variance, weight, bias, training=True, momentum=0.0)
    return float(variance) < 1.5


class _UnbiasedBatchNorm(nn.layer.norm._BatchNormBase):
    """Batch normalization that updates its running variance with the unbiased variance of n values.

    momentum * v + (1 - momentum) * biased * n / (n-1) is what Paddle computes from v * (n-1) / n, times n / (n-1). The
    backward pass keeps the variance that was passed in, so it must not be the layer's own tensor.
    """

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        count = x.size // x.shape[1]
        is_corrected = self.training and count > 1
        variance = self._variance * ((count - 1) / count) if is_corrected else self._variance
        y = F.batch_norm(
            x,
            self._mean,
            variance,
            self.weight,
            self.bias,
            training=self.training,
            momentum=self._momentum,
            epsilon=self._epsilon,
        )
        if is_corrected:
            paddle.assign(variance * (count / (count - 1)), self._variance)
        return y


class UnbiasedBatchNorm2D(_UnbiasedBatchNorm, nn.BatchNorm2D):
    pass


class UnbiasedBatchNorm3D(_UnbiasedBatchNorm, nn.BatchNorm3D):
    pass


REPLACEMENTS: dict[type, type] = {nn.BatchNorm2D: UnbiasedBatchNorm2D, nn.BatchNorm3D: UnbiasedBatchNorm3D}


def convert_batchnorm(model: nn.Layer) -> None:
    """Make a model's batch normalizations update their running variances with unbiased ones."""
    for layer in model.sublayers():
        layer.__class__ = REPLACEMENTS.get(type(layer), type(layer))


class _Fp32:
    """Mixin for a layer of one tensor: disables the automatic cast."""

    def __call__(self, x: paddle.Tensor) -> Any:  # not `forward`, which Paddle rewrites, losing super()
        with paddle.amp.auto_cast(enable=False):
            return super().__call__(x.astype("float32"))  # type: ignore[misc]


def convert_to_fp32(model: nn.Layer, names: Sequence[str]) -> None:
    """Make the named layers compute in fp32.

    Raises:
        KeyError: the model has no layer of this name.
    """
    layers = dict(model.named_sublayers())
    for name in names:
        layer_type = type(layers[name])
        layers[name].__class__ = type(layer_type.__name__, (_Fp32, layer_type), {})


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
