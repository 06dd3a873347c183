"""Batch normalisation over all ranks; on CPUs, where Paddle has none, our own.

There sums over samples are taken in float64 and all else is elementwise, so that the result does not depend on how the
samples are spread over ranks. As in Paddle's own, the input is all that is kept for the backward pass.
"""

from collections.abc import Callable

import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.autograd import PyLayer

from zoo.trainer.blocks import blocks
from zoo.trainer.paddle.parallel import total

CHUNK = 1 << 18  # elements in float64 at once: copies of a whole activation would be the peak of an update


class SyncBatchNormFunction(PyLayer):
    """(x, weight, bias, epsilon, elements per channel over all ranks) -> (normalised x, mean, variance (biased)).

    x: (N, C, ...) float32. Mean and variance: float64. Ioffe and Szegedy, arXiv:1502.03167.
    """

    @staticmethod
    def forward(ctx, x, weight, bias, epsilon, count):
        wide = total(_sums(lambda part: part, x)) / count
        mean = wide.astype("float32")
        variance = total(_sums(lambda part: (part - _along(mean, x)).square(), x)) / count
        variance = (variance - (wide - mean.astype("float64")).square()).clip(min=0)
        scale = paddle.rsqrt(variance + epsilon).astype("float32")
        ctx.count, ctx.wanted = count, [not tensor.stop_gradient for tensor in (x, weight, bias)]
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.mark_non_differentiable(wide, variance)
        factor, y = _along(weight * scale, x), paddle.empty_like(x)
        for block in blocks(x.shape, CHUNK):
            y[block] = (x[block] - _along(mean, x)) * factor + _along(bias, x)
        return y, wide, variance

    @staticmethod
    def backward(ctx, gradient, *_):
        x, weight, mean, scale = ctx.saved_tensor()

        def normalised(part: paddle.Tensor) -> paddle.Tensor:
            return (part - _along(mean, x)) * _along(scale, x)

        by_bias = _sums(lambda part: part, gradient)
        by_weight = _sums(lambda slope, part: normalised(part) * slope, gradient, x)
        shift, tilt = (_along((total(each) / ctx.count).astype("float32"), x) for each in (by_bias, by_weight))
        factor, slope = _along(weight * scale, x), paddle.empty_like(x)
        for block in blocks(x.shape, CHUNK):
            slope[block] = (gradient[block] - shift - normalised(x[block]) * tilt) * factor
        gradients = slope, by_weight.astype("float32"), by_bias.astype("float32")
        return tuple(each if wanted else None for each, wanted in zip(gradients, ctx.wanted))  # as Paddle insists on


def _sums(function: Callable[..., paddle.Tensor], *tensors: paddle.Tensor) -> paddle.Tensor:
    """function(tensors), summed over all axes but the channels: float64 (C,)."""
    axes = [axis for axis in range(tensors[0].ndim) if axis != 1]
    return sum(
        function(*(tensor[block] for tensor in tensors)).astype("float64").sum(axes)
        for block in blocks(tensors[0].shape, CHUNK)
    )


def _along(values: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
    """(C,) beside (N, C, ...)."""
    return values.reshape([1, -1] + [1] * (x.ndim - 2))


class _SyncBatchNorm:
    """The running variance takes in the unbiased one, as in the other frameworks."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if not self.training:
            return super().forward(x)
        count = x.size // x.shape[1] * dist.get_world_size()  # every rank has as many
        y, mean, variance = SyncBatchNormFunction.apply(x, self.weight, self.bias, self._epsilon, count)
        with paddle.no_grad():
            for running, new in ((self._mean, mean), (self._variance, variance * (count / max(count - 1, 1)))):
                paddle.assign(self._momentum * running + (1 - self._momentum) * new.astype("float32"), running)
        return y


class SyncBatchNorm2D(_SyncBatchNorm, nn.BatchNorm2D):
    pass


class SyncBatchNorm3D(_SyncBatchNorm, nn.BatchNorm3D):
    pass


KINDS = {nn.BatchNorm2D: SyncBatchNorm2D, nn.BatchNorm3D: SyncBatchNorm3D}


def convert_sync_batchnorm(model: nn.Layer, on_cpu: bool) -> nn.Layer:
    """The model with batch normalisations that take their statistics over all ranks."""
    if not on_cpu:
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for layer in model.sublayers():
        layer.__class__ = KINDS.get(type(layer), type(layer))
    return model
