"""Batch normalization whose running variance agrees with PyTorch and MindSpore, and with statistics over all ranks.

All frameworks normalize with the biased variance of a batch. PyTorch and MindSpore update the running variance
with the unbiased one; Paddle does so only in cuDNN, and on CPUs uses the biased one.

For CPUs, Paddle has no statistics over all ranks. The one here sums over samples in float64, and all other operations
are elementwise, so that the result does not depend on how samples are distributed over ranks. Like Paddle's own, it
saves only the input for the backward pass.
"""

import warnings
from collections.abc import Callable
from typing import Any

import paddle
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayer

from zoo.data.errors import UserError
from zoo.trainer.paddle.parallel import all_reduce
from zoo.trainer.update import blocks

# Every training forward pass warns of it.
warnings.filterwarnings("ignore", "When training, we now always track global mean and variance")


def updates_biased_variance(place) -> bool:
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


BLOCK_SIZE = 1 << 18  # elements per block: float64 copies of a whole activation would double the peak memory


class SyncBatchNormFunction(PyLayer):
    """(x, weight, bias, epsilon, elements per channel over all ranks) -> (y, mean, biased variance).

    x: (N, C, ...) float32 or float64. Mean and variance: float64. Ioffe and Szegedy, arXiv:1502.03167.
    """

    @staticmethod
    def forward(ctx: Any, x, weight, bias, epsilon, count):
        mean64 = all_reduce(_channel_sums(lambda part: part, x)) / count
        mean = mean64.astype(x.dtype)
        variance = all_reduce(_channel_sums(lambda part: (part - _broadcast(mean, x)).square(), x)) / count
        variance = (variance - (mean64 - mean.astype("float64")).square()).clip(min=0)
        scale = paddle.rsqrt(variance + epsilon).astype(x.dtype)
        ctx.count, ctx.needs_gradient = count, [not tensor.stop_gradient for tensor in (x, weight, bias)]
        ctx.save_for_backward(x, weight, mean, scale)
        ctx.mark_non_differentiable(mean64, variance)
        factor, y = _broadcast(weight * scale, x), paddle.empty_like(x)
        for block in blocks(x.shape, BLOCK_SIZE):
            y[block] = (x[block] - _broadcast(mean, x)) * factor + _broadcast(bias, x)
        return y, mean64, variance

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any):
        grad_y = grad_outputs[0]
        x, weight, mean, scale = ctx.saved_tensor()

        def normalized(part: paddle.Tensor) -> paddle.Tensor:
            return (part - _broadcast(mean, x)) * _broadcast(scale, x)

        grad_bias = _channel_sums(lambda part: part, grad_y)
        grad_weight = _channel_sums(lambda grad, part: normalized(part) * grad, grad_y, x)
        mean_grad, mean_product = (
            _broadcast((all_reduce(sums.clone()) / ctx.count).astype(x.dtype), x) for sums in (grad_bias, grad_weight)
        )
        factor, grad_x = _broadcast(weight * scale, x), paddle.empty_like(x)
        for block in blocks(x.shape, BLOCK_SIZE):
            grad_x[block] = (grad_y[block] - mean_grad - normalized(x[block]) * mean_product) * factor
        gradients = grad_x, grad_weight.astype(x.dtype), grad_bias.astype(x.dtype)
        # Paddle requires None for an input that needs no gradient.
        return tuple(gradient if needed else None for gradient, needed in zip(gradients, ctx.needs_gradient))


def _channel_sums(function: Callable[..., paddle.Tensor], *tensors: paddle.Tensor) -> Any:
    """Return function(tensors), summed in float64 over all axes but the channels: (C,)."""
    axes = [axis for axis in range(tensors[0].ndim) if axis != 1]
    return sum(
        function(*(tensor[block] for tensor in tensors)).astype("float64").sum(axes)
        for block in blocks(tensors[0].shape, BLOCK_SIZE)
    )


def num_elements(x: paddle.Tensor, over_ranks: bool) -> int:
    """Return the number of elements per channel of x (N, C, ...), over all ranks if so asked."""
    ranks = dist.get_world_size() if over_ranks else 1  # every rank has the same batch size
    return x.size // x.shape[1] * ranks


def _broadcast(values: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
    """Reshape values (C,) so that they broadcast over x (N, C, ...)."""
    return values.reshape([1, -1] + [1] * (x.ndim - 2))


class _SyncBatchNorm(nn.layer.norm._BatchNormBase):
    """Batch normalization that updates its running variance with the unbiased one, like the other frameworks."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if not self.training:
            return super().forward(x)
        count = num_elements(x, over_ranks=True)
        y, mean, variance = SyncBatchNormFunction.apply(x, self.weight, self.bias, self._epsilon, count)
        with paddle.no_grad():
            for running, new in ((self._mean, mean), (self._variance, variance * (count / max(count - 1, 1)))):
                paddle.assign(self._momentum * running + (1 - self._momentum) * new.astype("float32"), running)
        return y


class SyncBatchNorm2D(_SyncBatchNorm, nn.BatchNorm2D):
    pass


class SyncBatchNorm3D(_SyncBatchNorm, nn.BatchNorm3D):
    pass


class DeviceSyncBatchNorm(nn.SyncBatchNorm):
    """Paddle's own for GPUs and NPUs, which keeps the biased variance, with the unbiased one. Not run so far."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        kept = self._momentum * self._variance
        y = super().forward(x)
        if self.training:
            count = num_elements(x, over_ranks=True)
            with paddle.no_grad():
                paddle.assign(kept + (self._variance - kept) * (count / max(count - 1, 1)), self._variance)
        return y


SYNC_REPLACEMENTS: dict[type, type] = {nn.BatchNorm2D: SyncBatchNorm2D, nn.BatchNorm3D: SyncBatchNorm3D}


def convert_sync_batchnorm(model: nn.Layer, on_cpu: bool) -> None:
    """Make a model's batch normalizations use statistics over all ranks."""
    if not on_cpu:
        _require_sums_over_ranks()
    for layer in model.sublayers():
        if type(layer) in SYNC_REPLACEMENTS:
            layer.__class__ = SYNC_REPLACEMENTS[type(layer)] if on_cpu else DeviceSyncBatchNorm


def _require_sums_over_ranks() -> None:
    """Raise UserError if the device's kernel normalizes each rank by itself, as one without a communicator does."""
    layer, ranks = nn.SyncBatchNorm(1, momentum=0.0), dist.get_world_size()
    layer(paddle.full([1, 1, 1, 1], float(dist.get_rank())))
    if abs(float(layer._mean) - (ranks - 1) / 2) > 0.1:
        raise UserError("train.sync_bn: Paddle's kernel does not sum over ranks here; leave it out, or use PyTorch")
