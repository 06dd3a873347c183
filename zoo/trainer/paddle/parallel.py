"""Several processes in PaddlePaddle: gradients, batch statistics and running statistics over all ranks."""
from typing import Callable, List

import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.autograd import PyLayer


class Shell(nn.Layer):
    """A net whose forward pass is the given function of a list of tensors: what DataParallel wraps."""

    def __init__(self, net: nn.Layer, function: Callable):
        super().__init__()
        self.net, self.function = net, function

    def forward(self, *inputs):
        return self.function(list(inputs))


def synchronised(net: nn.Layer, on_cpu: bool) -> nn.Layer:
    """The net with batch normalisations that take their statistics over all ranks."""
    if not on_cpu:
        return nn.SyncBatchNorm.convert_sync_batchnorm(net)
    for layer in net.sublayers():
        layer.__class__ = SYNCHRONISED.get(type(layer), type(layer))
    return net


@paddle.no_grad()
def average(tensors: List[paddle.Tensor]) -> None:
    """Give every rank the mean over ranks, in place."""
    flat = paddle.concat([tensor.flatten() for tensor in tensors])
    dist.all_reduce(flat)
    _put_back(tensors, flat / dist.get_world_size())


@paddle.no_grad()
def average_as_fp16(gradients: List[paddle.Tensor]) -> None:
    """The mean over ranks in place, by way of fp16, after the backward pass."""
    flat = (paddle.concat([gradient.flatten() for gradient in gradients]) / dist.get_world_size()).astype("float16")
    dist.all_reduce(flat)
    _put_back(gradients, flat.astype("float32"))


def _put_back(tensors: List[paddle.Tensor], flat: paddle.Tensor) -> None:
    for tensor, part in zip(tensors, paddle.split(flat, [tensor.size for tensor in tensors])):
        paddle.assign(part.reshape(tensor.shape), tensor)


class _Sum(PyLayer):
    """The sum over ranks; so is its gradient."""

    @staticmethod
    def forward(ctx, x):
        return total(x)

    @staticmethod
    def backward(ctx, gradient):
        return total(gradient)


def total(x: paddle.Tensor) -> paddle.Tensor:
    """The sum over ranks."""
    found = x.clone()
    if dist.get_world_size() > 1:
        dist.all_reduce(found)
    return found


class _Synchronised:
    """What nn.SyncBatchNorm does, which Paddle has for GPUs alone. The running variance takes in the unbiased one.

    In float64, so that the result does not depend on how the samples are spread over ranks.
    """

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        if not self.training:
            return super().forward(x)
        axes, wide = [axis for axis in range(x.ndim) if axis != 1], x.astype("float64")
        count = x.size // x.shape[1] * dist.get_world_size()  # every rank has as many
        shape = [1, -1] + [1] * (x.ndim - 2)
        mean = _Sum.apply(wide.sum(axes)) / count
        centred = wide - mean.reshape(shape)
        variance = _Sum.apply((centred * centred).sum(axes)) / count
        with paddle.no_grad():
            for running, new in ((self._mean, mean), (self._variance, variance * (count / max(count - 1, 1)))):
                paddle.assign(self._momentum * running + (1 - self._momentum) * new.astype("float32"), running)
        factor = self.weight * paddle.rsqrt(variance + self._epsilon)
        return (centred * factor.reshape(shape) + self.bias.reshape(shape)).astype(x.dtype)


class Synchronised2D(_Synchronised, nn.BatchNorm2D):
    pass


class Synchronised3D(_Synchronised, nn.BatchNorm3D):
    pass


SYNCHRONISED = {nn.BatchNorm2D: Synchronised2D, nn.BatchNorm3D: Synchronised3D}
