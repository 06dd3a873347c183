"""Batch normalization whose running variance agrees with PyTorch and MindSpore.

All three frameworks normalize with the biased variance of a batch. PyTorch and MindSpore update the running variance
with the unbiased one; Paddle does so only in cuDNN, and on CPUs uses the biased one.
"""

import warnings

import paddle
import paddle.nn.functional as F
from paddle import nn

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
